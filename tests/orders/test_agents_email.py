"""The email agent sends one mail per key and tells refusals from outages."""

from __future__ import annotations

import pytest

from orders.agents.email import EmailAgent
from orders.intake import order_number
from supervision import OutcomeUnknown, PermanentFailure, TransientFailure
from tests.support.requests import StepOfOrder

agent = EmailAgent()


@pytest.fixture
def step(order) -> StepOfOrder:
    return StepOfOrder(order, "notify-customer", run_id=4711, seconds=3)


def test_one_mail_is_delivered_when_the_agent_runs_twice_with_one_key(services, step, order, settings):
    settings.DEFAULT_FROM_EMAIL = "Shop <orders@mugs.example>"

    first, second = agent.perform(step.request()), agent.perform(step.request(attempt=2))

    assert first == second
    assert first["message_id"].endswith("@mugs.example>")
    [sent, again] = services.ledger("mail", order)
    assert (sent["effect"], again["effect"]) == (True, False)
    assert sent["key"] == step.request().idempotency_key
    assert sent["to"] == ["ada@example.com"]
    assert order_number(4711) in sent["subject"]


def test_the_mail_says_what_was_bought_and_where_it_goes(step, settings, mailoutbox):
    step.payload["lines"][0]["name"] = "Mug & <saucer>"

    agent.perform(step.request())

    [mail] = mailoutbox
    [html, kind] = mail.alternatives[0]
    assert "2 x Mug & <saucer>" in mail.body
    assert "25.80 EUR" in mail.body
    assert "10121 Torino" in mail.body
    assert kind == "text/html"
    assert "Mug &amp; &lt;saucer&gt;" in html
    assert mail.extra_headers["X-Order-ID"] == step.order


def test_a_refused_address_is_a_permanent_failure_that_does_not_repeat_it(services, step):
    services.faults("mail", "decline")

    with pytest.raises(PermanentFailure) as refused:
        agent.perform(step.request())

    assert refused.value.code == "mail_refused"
    assert "550" in str(refused.value)
    assert "ada@example.com" not in str(refused.value)


@pytest.mark.parametrize("mode", ["error_before", "down"])
def test_a_mail_server_that_cannot_take_it_now_has_done_nothing(services, step, order, mode):
    services.faults("mail", mode)

    with pytest.raises(TransientFailure) as failure:
        agent.perform(step.request())

    assert not isinstance(failure.value, OutcomeUnknown)
    assert services.effects("mail", "deliver", order) == 0


def test_a_mail_server_that_nobody_reaches_has_done_nothing(services, step, settings):
    settings.EMAIL_PORT = 1

    with pytest.raises(TransientFailure) as failure:
        agent.perform(step.request())

    assert not isinstance(failure.value, OutcomeUnknown)


@pytest.mark.parametrize("mode", ["timeout_after_effect", "reset_after_effect"])
def test_a_mail_whose_answer_is_lost_is_sent_again_and_delivered_once(services, step, order, mode):
    services.faults("mail", mode)
    step.seconds = 0.5
    with pytest.raises(OutcomeUnknown):
        agent.perform(step.request())
    services.clear()
    step.seconds = 3

    agent.perform(step.request(attempt=2))

    assert services.effects("mail", "deliver", order) == 1


def test_a_mail_cannot_be_undone():
    assert not EmailAgent.undoable
