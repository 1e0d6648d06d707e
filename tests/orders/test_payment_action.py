"""A payment that the bank wants its customer to confirm: the agent waits, looks, and charges once or not at all."""

from __future__ import annotations

import pytest

from orders.agents.payment import PaymentAgent
from orders.gateways import payment
from orders.payments import codes
from supervision import AwaitSignal, OutcomeUnknown, PermanentFailure, TransientFailure
from tests.support.requests import StepOfOrder
from tests.support.simulators import SECOND_FACTOR

TOTAL = 2580
agent = PaymentAgent()


@pytest.fixture
def step(order) -> StepOfOrder:
    step = StepOfOrder(order, "charge-payment", seconds=4)
    step.payload["payment_method"] = SECOND_FACTOR
    return step


def hand_over(step: StepOfOrder, **request) -> AwaitSignal:
    with pytest.raises(AwaitSignal) as waits:
        step.try_to(agent, step.request(**request))
    return waits.value


def page_of(step: StepOfOrder) -> str:
    return step.noted[codes.ACTION]["url"]


def refused(step: StepOfOrder, **request) -> str:
    with pytest.raises(PermanentFailure) as failure:
        step.try_to(agent, step.request(**request))
    assert failure.value.for_customer
    assert failure.value.public_message
    return failure.value.code


def test_the_agent_hands_over_with_the_page_that_the_customer_has_to_open(services, step, order, settings):
    settings.PAYMENT_ACTION_WITHIN, settings.PAYMENT_LOOK_AFTER = 600, 60

    waits = hand_over(step)

    assert (waits.name, waits.within.total_seconds(), waits.look_after.total_seconds()) == ("payment-answered", 600, 60)
    assert page_of(step).startswith(f"{services.url}/bank/pi_")
    assert services.charged(order) == 0
    assert step.outcomes() == [("do", "create", "done"), ("do", "confirm", "unknown")]


def test_the_customers_confirmation_completes_the_step(services, step, order):
    hand_over(step)
    services.answer_bank(page_of(step))

    result = step.try_to(agent, step.request(attempt=2, wait_left=500.0, signal={}))

    assert result == {"intent": step.noted["intent"], "amount": TOTAL, "currency": "EUR"}
    assert services.charged(order) == TOTAL
    assert step.outcomes() == [("do", "create", "done"), ("do", "confirm", "done")]


def test_a_look_finds_a_confirmation_of_which_no_signal_told(services, step, order):
    hand_over(step)
    services.answer_bank(page_of(step))

    assert step.try_to(agent, step.request(attempt=2, wait_left=500.0))["amount"] == TOTAL


@pytest.mark.parametrize("signal", [None, {"forged": True}])
def test_a_signal_alone_proves_nothing_and_the_step_waits_on(services, step, order, signal):
    hand_over(step)

    waits = hand_over(step, attempt=2, wait_left=123.0, signal=signal)

    assert waits.within.total_seconds() == 123
    assert services.charged(order) == 0
    assert services.effects("payment", "confirm", order) == 1


def test_a_customer_who_refuses_is_not_charged_and_the_payment_is_closed(services, step, order):
    hand_over(step)
    services.answer_bank(page_of(step), "refuse")

    assert refused(step, attempt=2, wait_left=500.0, signal={}) == codes.ACTION_REFUSED
    assert services.effects("payment", "cancel", order) == 1
    assert step.outcomes() == [("do", "create", "undone"), ("do", "confirm", "refused")]


def test_a_confirmation_that_does_not_come_in_time_can_not_come_any_more(services, step, order):
    hand_over(step)

    assert refused(step, attempt=2, wait_left=-1.0) == codes.ACTION_TIMEOUT
    assert services.answer_bank(page_of(step)) == 409
    assert services.charged(order) == 0


def test_a_confirmation_at_the_last_moment_completes_the_step_although_its_time_is_over(services, step, order, monkeypatch):
    hand_over(step)
    cancel = payment.cancel

    def just_before(intent, *, key):  # the agent has seen a payment that waits, and is about to cancel it
        services.answer_bank(page_of(step))
        return cancel(intent, key=key)

    monkeypatch.setattr(payment, "cancel", just_before)

    assert step.try_to(agent, step.request(attempt=2, wait_left=-1.0))["amount"] == TOTAL
    assert services.charged(order) == TOTAL
    assert step.outcomes() == [("do", "create", "done"), ("do", "confirm", "done")]


def test_a_payment_cancelled_at_the_service_is_refused(services, step, order):
    hand_over(step)
    intent, key = step.noted["intent"], {"Authorization": "Bearer sk_test_simulator"}
    services.http.post(f"{services.url}/v1/payment_intents/{intent}/cancel", headers=key).raise_for_status()

    assert refused(step, attempt=2, wait_left=500.0, signal={}) == codes.PAYMENT_CANCELLED
    assert services.effects("payment", "create", order) == 1, "it began another payment"


def test_an_attempt_that_dies_between_the_refusal_and_its_record_is_repeated_as_a_refusal(services, step, order):
    hand_over(step)
    services.answer_bank(page_of(step), "refuse")
    services.faults("payment", "timeout_after_effect")
    step.seconds = 0.5
    with pytest.raises((TransientFailure, PermanentFailure)):
        step.try_to(agent, step.request(attempt=2, wait_left=500.0, signal={}))
    services.clear()
    step.seconds = 4

    assert refused(step, attempt=3, wait_left=400.0, signal={}) in (codes.ACTION_REFUSED, codes.PAYMENT_CANCELLED)
    assert services.effects("payment", "create", order) == 1


def test_an_attempt_that_died_before_it_waited_hands_over_the_same_payment(services, step, order):
    hand_over(step)
    first = page_of(step)
    step.noted.pop(codes.ACTION)  # it died before it had saved the page

    hand_over(step, attempt=2)

    assert page_of(step) == first
    assert [entry["operation"] for entry in services.ledger("payment", order)] == ["create", "confirm"]


@pytest.mark.parametrize("mode", ["error_after_effect", "timeout_after_effect", "reset_after_effect"])
def test_a_lost_answer_of_the_confirmation_is_a_wait_all_the_same(services, step, order, mode):
    step.before_checkpoint = lambda: services.faults("payment", mode) if codes.ACTION not in step.noted else None

    hand_over(step)
    services.clear()

    assert page_of(step)
    services.answer_bank(page_of(step))
    step.try_to(agent, step.request(attempt=2, wait_left=1.0, signal={}))
    assert services.charged(order) == TOTAL


def test_the_undo_closes_a_payment_that_waits_and_a_late_confirmation_charges_nothing(services, step, order):
    hand_over(step)

    undone = step.try_to(agent, step.undo())

    assert undone == {"cancelled": [step.noted["intent"]], "refunded": []}
    assert services.answer_bank(page_of(step)) == 409
    assert services.charged(order) == 0


def test_the_undo_gives_back_what_the_customer_confirmed_just_before(services, step, order):
    hand_over(step)
    services.answer_bank(page_of(step))

    undone = step.try_to(agent, step.undo())

    assert undone["refunded"] == [step.noted["intent"]]
    assert services.charged(order) == 0


def test_another_card_after_a_refusal_is_charged_once(services, step, order):
    hand_over(step)
    services.answer_bank(page_of(step), "refuse")
    refused(step, attempt=2, wait_left=500.0, signal={})
    step.payload["payment_method"] = "pm_card_visa"

    # The step has handed over, so its effect stays unknown and a resubmission keeps its key.
    result = step.try_to(agent, step.request(attempt=3))

    assert result["intent"] == step.noted["intent"]
    assert services.charged(order) == TOTAL


def test_another_card_while_the_old_one_still_waits_closes_the_old_payment(services, step, order):
    hand_over(step)
    old = page_of(step)
    step.payload["payment_method"] = "pm_card_visa"

    step.try_to(agent, step.request(attempt=2))

    assert services.answer_bank(old) == 409
    assert services.charged(order) == TOTAL


@pytest.mark.parametrize("after", [False, True])
def test_an_attempt_that_died_while_it_made_another_payment_leaves_no_open_row(services, step, order, monkeypatch, after):
    hand_over(step)
    services.answer_bank(page_of(step), "refuse")
    refused(step, attempt=2, wait_left=500.0, signal={})
    step.payload["payment_method"] = "pm_card_visa"
    create = payment.create

    def dies(**how):
        if after:
            create(**how)
        raise KeyboardInterrupt

    with monkeypatch.context() as killed:
        killed.setattr(payment, "create", dies)
        with pytest.raises(KeyboardInterrupt):
            agent.perform(step.request(attempt=3))  # nothing of it is settled
    assert ("do", "create", "intended") in step.outcomes()

    step.try_to(agent, step.request(attempt=4))

    assert {outcome for _, _, outcome in step.outcomes()} <= {"done", "refused", "undone"}
    assert services.charged(order) == TOTAL
    assert services.effects("payment", "create", order) == 2


def test_a_service_that_is_away_when_the_time_is_over_leaves_the_outcome_open(services, step, order):
    hand_over(step)
    services.faults("payment", "down")

    with pytest.raises(OutcomeUnknown):
        step.try_to(agent, step.request(attempt=2, wait_left=-1.0))

    services.clear()
    assert refused(step, attempt=3, wait_left=-2.0) == codes.ACTION_TIMEOUT


def test_an_attempt_that_lost_its_claim_saves_no_page(services, step):
    step.before_checkpoint = lambda: setattr(step, "claim_lost", "intent" in step.noted)

    with pytest.raises(TransientFailure):
        step.try_to(agent, step.request())

    assert codes.ACTION not in step.noted
