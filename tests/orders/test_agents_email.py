"""The email agent sends one mail per key and tells refusals from outages."""

from __future__ import annotations

import socket
import threading

import pytest
from django.core.mail import get_connection
from django.core.mail.utils import DNS_NAME

from chaos.look import until
from orders.agents.email import EmailAgent
from orders.intake import number_of
from supervision import OutcomeUnknown, PermanentFailure, TransientFailure
from supervision.runtime import names
from tests.support.requests import StepOfOrder

agent = EmailAgent()


@pytest.fixture
def step(order) -> StepOfOrder:
    return StepOfOrder(order, "notify-customer", run_id=4711, seconds=3)


def test_one_mail_is_delivered_when_the_agent_runs_twice_with_one_key(services, step, order, settings):
    settings.DEFAULT_FROM_EMAIL = "Shop <orders@mugs.example>"

    first, second = step.try_to(agent, step.request()), step.try_to(agent, step.request(attempt=2))

    assert first == second
    assert first["message_id"].endswith("@mugs.example>")
    [mail] = services.ledger("mail", order)
    assert mail["key"] == step.request().idempotency_key
    assert mail["to"] == ["ada@example.com"]
    assert number_of({}, 4711) in mail["subject"]


def test_the_mail_says_what_was_bought_and_where_it_goes(step, settings, mailoutbox):
    step.payload["lines"][0]["name"] = "Mug & <saucer>"

    agent.perform(step.request())

    [mail] = mailoutbox
    [html, kind] = mail.alternatives[0]
    assert "2 x Mug & <saucer>" in mail.body
    assert "€25.80" in mail.body
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


@pytest.mark.parametrize("address", ["[erased]", "erased-7@erased.invalid"])
def test_no_mail_is_sent_to_a_person_who_was_erased(services, step, order, address):
    step.payload = {**step.payload, "email": address}
    with pytest.raises(PermanentFailure, match="The person was erased"):
        step.try_to(agent, step.request())

    assert sent(services, order) == 0
    assert step.outcomes() == [("do", "send", "refused")]


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


@pytest.mark.parametrize("tls", [False, True])
def test_a_name_server_without_an_answer_holds_no_mail_longer_than_its_time(silent, step, settings, tls):
    settings.EMAIL_BACKEND, settings.EMAIL_HOST, settings.EMAIL_USE_SSL = "sasproject.mail.EmailBackend", "silent.example", tls
    step.seconds = 0.4

    with pytest.raises(TransientFailure) as failure:
        agent.perform(step.request())

    assert not isinstance(failure.value, OutcomeUnknown)
    assert failure.value.unreachable
    assert names._looking, "the mail waited for the end of the lookup"


def test_a_server_with_several_addresses_has_all_the_time_for_each_answer(services, settings, monkeypatch):
    ask, port = socket.getaddrinfo, settings.EMAIL_PORT
    several = lambda *asked, **how: [*ask("127.0.0.1", port, **how), *ask("127.0.0.2", port, **how)]  # noqa: E731
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda host, *more, **how: (several if host == "several.example" else ask)(host, *more, **how)
    )
    settings.EMAIL_HOST = "several.example"

    with get_connection("sasproject.mail.EmailBackend", timeout=7) as session:
        assert session.connection.sock.gettimeout() == 7


def test_a_name_server_that_does_not_know_this_machine_delays_no_mail(services, step, order, monkeypatch):
    over = threading.Event()
    monkeypatch.delattr(DNS_NAME, "_fqdn", raising=False)
    monkeypatch.setattr(socket, "getfqdn", lambda: over.wait(30) and "late.example")
    step.seconds = 2

    step.try_to(agent, step.request())

    assert names._looking, "the mail waited for the end of the lookup"
    assert sent(services, order) == 1
    over.set()
    until(lambda: not names._looking, what="the end of the lookup")


@pytest.mark.parametrize("mode", ["timeout_after_effect", "reset_after_effect"])
def test_a_mail_whose_answer_is_lost_is_sent_once_more_under_the_same_id(services, step, order, mode):
    services.faults("mail", mode)
    step.seconds = 0.5
    with pytest.raises(OutcomeUnknown):
        step.try_to(agent, step.request())
    services.clear()
    step.seconds = 3

    for attempt in (2, 3):
        step.try_to(agent, step.request(attempt=attempt))

    keys = [entry["key"] for entry in services.ledger("mail", order)]
    assert keys == [step.request().idempotency_key] * 2
    assert step.outcomes() == [("do", "send", "unknown"), ("do", "repeat", "done")]


def test_an_attempt_that_died_with_the_mail_out_is_followed_by_one_repetition(services, step, order):
    lost = step.request()
    lost.book.intend(agent.opens_with(lost))
    agent.perform(lost)  # the process dies before it records the outcome

    for attempt in (2, 3):
        step.try_to(agent, step.request(attempt=attempt))

    assert sent(services, order) == 2


def test_a_mail_cannot_be_undone():
    assert not EmailAgent.undoable


def sent(services, order) -> int:
    return len([entry for entry in services.ledger("mail", order) if entry["operation"] == "deliver"])


@pytest.mark.parametrize("mode", ["error_after_effect", "reset_after_effect"])
def test_a_mail_in_doubt_is_sent_once_more_and_not_a_third_time(services, step, order, mode):
    services.faults("mail", mode)
    for attempt in (1, 2):
        with pytest.raises(OutcomeUnknown):
            step.try_to(agent, step.request(attempt=attempt))

    with pytest.raises(PermanentFailure, check=lambda error: error.code == "mail_unconfirmed"):
        step.try_to(agent, step.request(attempt=3))
    assert sent(services, order) == 2
    assert step.outcomes() == [("do", "send", "unknown"), ("do", "repeat", "unknown")]


def test_a_mail_is_not_repeated_once_the_server_has_accepted_it(services, step, order):
    step.try_to(agent, step.request())

    again = step.try_to(agent, step.request(attempt=2))

    assert again["message_id"]
    assert sent(services, order) == 1


def test_a_mail_that_was_certainly_not_sent_is_tried_as_often_as_it_takes(services, step, order):
    services.faults("mail", "error_before")
    for attempt in (1, 2, 3):
        with pytest.raises(TransientFailure) as failure:
            step.try_to(agent, step.request(attempt=attempt))
        assert not isinstance(failure.value, OutcomeUnknown)
    services.clear()

    step.try_to(agent, step.request(attempt=4))

    assert services.effects("mail", "deliver", order) == 1
    assert step.outcomes() == [("do", "send", "done")]


def test_an_attempt_that_died_may_have_sent_the_mail(services, step, order):
    for attempt in (1, 2):
        book = step.request(attempt=attempt).book
        book.intend(agent.opens_with(step.request(attempt=attempt)))
    step.try_to(agent, step.request(attempt=3))

    assert step.outcomes() == [("do", "send", "unknown"), ("do", "repeat", "done")]
    assert sent(services, order) == 1
