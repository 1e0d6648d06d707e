"""The payment agent reserves an order's total at the checkout and charges it later: once or not at all, and releases it when undone."""

from __future__ import annotations

from contextlib import suppress

import pytest

from orders.agents.payment import PaymentAgent
from orders.gateways import http, payment
from orders.payments import codes
from supervision import AwaitSignal, OutcomeUnknown, PermanentFailure, TransientFailure
from tests.support.requests import StepOfOrder
from tests.support.simulators import KEY, SECOND_FACTOR

TOTAL = 2580
LOST = ["error_after_effect", "timeout_after_effect", "reset_after_effect"]
agent = PaymentAgent()


@pytest.fixture
def step(order) -> StepOfOrder:
    """The step that reserves."""
    return StepOfOrder(order, codes.AUTHORISE, seconds=4)


@pytest.fixture
def later(order) -> StepOfOrder:
    """The step that charges."""
    return StepOfOrder(order, codes.CAPTURE, seconds=4)


def capture(step: StepOfOrder, reserved, attempt: int = 1, **more):
    return step.try_to(agent, step.request(attempt=attempt, results={codes.AUTHORISE: reserved}, **more))


def refused(step: StepOfOrder, reserved, attempt: int = 1) -> PermanentFailure:
    with pytest.raises(PermanentFailure) as failure:
        capture(step, reserved, attempt)
    return failure.value


def test_the_total_is_reserved_and_nothing_is_charged(services, step, order):
    result = step.try_to(agent, step.request())

    assert result == {"intent": step.noted["intent"], "amount": TOTAL, "currency": "EUR"}
    assert services.status(result["intent"]) == "requires_capture"
    assert services.charged(order) == 0
    assert step.outcomes() == [("do", "create", "done"), ("do", "confirm", "done")]
    assert all(one.amount is None for one in step.rows.values()), "the ledger says that money moved"


@pytest.mark.parametrize("mode", LOST)
def test_a_lost_answer_is_looked_up_and_reserves_once(services, step, order, mode):
    services.faults("payment", mode)

    step.try_to(agent, step.request())

    assert services.effects("payment", "create", order) == services.effects("payment", "confirm", order) == 1


@pytest.mark.parametrize("mode", LOST)
def test_the_next_attempt_adopts_what_the_first_one_reserved_without_learning_of_it(services, step, order, mode):
    step.before_checkpoint = lambda: services.faults("payment", mode)
    impatient = StepOfOrder(order, codes.AUTHORISE, seconds=0.4, before_checkpoint=step.before_checkpoint, noted=step.noted, rows=step.rows)
    with suppress(OutcomeUnknown):
        impatient.try_to(agent, impatient.request())
    services.clear()
    step.before_checkpoint = lambda: None

    result = step.try_to(agent, step.request(attempt=2))

    assert services.status(result["intent"]) == "requires_capture"
    assert services.effects("payment", "confirm", order) == 1
    assert {outcome for _, _, outcome in step.outcomes()} == {"done"}


def test_the_rows_of_an_attempt_that_died_after_it_reserved_are_settled_by_the_next(services, step, order, monkeypatch):
    confirm = payment.confirm

    def dies(intent, **how):
        confirm(intent, **how)
        raise KeyboardInterrupt

    with monkeypatch.context() as killed:
        killed.setattr(payment, "confirm", dies)
        with pytest.raises(KeyboardInterrupt):
            agent.perform(step.request())  # nothing of it is settled
    assert ("do", "confirm", "intended") in step.outcomes()

    step.try_to(agent, step.request(attempt=2))

    assert {outcome for _, _, outcome in step.outcomes()} == {"done"}
    assert services.effects("payment", "create", order) == services.effects("payment", "confirm", order) == 1


def test_a_declined_card_reserves_nothing_and_its_payment_is_closed(services, step, order):
    step.payload["payment_method"] = "pm_card_visa_chargeDeclined"

    with pytest.raises(PermanentFailure) as failure:
        step.try_to(agent, step.request())

    assert failure.value.code == codes.CARD_DECLINED
    assert services.effects("payment", "cancel", order) == 1
    assert step.outcomes() == [("do", "create", "undone"), ("do", "confirm", "refused")]


def test_a_second_factor_reserves_once_the_customer_has_confirmed(services, step, order):
    step.payload["payment_method"] = SECOND_FACTOR
    with pytest.raises(AwaitSignal):
        step.try_to(agent, step.request())
    services.answer_bank(step.noted[codes.ACTION]["url"])

    result = step.try_to(agent, step.request(attempt=2, wait_left=100.0, signal={}))

    assert services.status(result["intent"]) == "requires_capture"
    assert services.charged(order) == 0
    assert step.outcomes() == [("do", "create", "done"), ("do", "confirm", "done")]


def test_a_transfer_after_all_releases_what_the_card_had_reserved(services, step, order):
    reserved = step.try_to(agent, step.request())
    step.payload["payment_method"] = codes.BANK_TRANSFER

    with pytest.raises(AwaitSignal):
        step.try_to(agent, step.request(attempt=2))

    assert services.status(reserved["intent"]) == "canceled"
    assert {outcome for _, _, outcome in step.outcomes()} == {"undone"}


# ------------------------------------------------------------------------------------------------ capturing


def test_what_is_reserved_is_charged_in_one_call(services, step, later, order):
    reserved = step.try_to(agent, step.request())

    result = capture(later, reserved)

    assert result == reserved
    assert services.charged(order) == TOTAL
    assert later.outcomes() == [("do", "capture", "done")]
    [row] = later.rows.values()
    assert (row.key, str(row.amount), row.currency, row.external_id) == (
        f"{order}:{codes.CAPTURE}:do:1:capture",
        "25.80",
        "EUR",
        reserved["intent"],
    )


@pytest.mark.parametrize("mode", [*LOST, "error_before"])
def test_a_capture_without_an_answer_is_looked_up_and_charges_once(services, step, later, order, mode):
    reserved = step.try_to(agent, step.request())
    services.faults("payment", mode)
    later.seconds = 0.5
    with suppress(OutcomeUnknown, TransientFailure):
        capture(later, reserved)
    services.clear()
    later.seconds = 4

    assert capture(later, reserved, attempt=2) == reserved
    assert services.effects("payment", "capture", order) == 1
    assert services.charged(order) == TOTAL
    assert later.outcomes() == [("do", "capture", "done")]


def test_two_attempts_at_once_charge_once(services, step, later, order):
    reserved = step.try_to(agent, step.request())
    frozen = later.request(results={codes.AUTHORISE: reserved})
    later.try_to(agent, later.request(attempt=2, results={codes.AUTHORISE: reserved}))

    assert agent.perform(frozen) == reserved
    assert services.effects("payment", "capture", order) == 1
    assert services.charged(order) == TOTAL


def test_an_attempt_that_lost_its_claim_captures_nothing(services, step, later, order):
    reserved = step.try_to(agent, step.request())
    later.claim_lost = True

    with pytest.raises(TransientFailure):
        agent.perform(later.request(results={codes.AUTHORISE: reserved}))

    assert services.charged(order) == 0


def test_what_an_operator_captured_at_the_service_is_not_captured_again(services, step, later, order):
    reserved = step.try_to(agent, step.request())
    payment_of = f"{services.url}/v1/payment_intents/{reserved['intent']}"
    services.http.post(f"{payment_of}/capture", headers=KEY).raise_for_status()

    assert capture(later, reserved) == reserved
    assert services.charged(order) == TOTAL


def test_a_part_that_an_operator_captured_at_the_service_is_never_taken_for_the_whole(services, step, later, order):
    reserved = step.try_to(agent, step.request())
    data = {"amount_to_capture": "1000"}
    services.http.post(f"{services.url}/v1/payment_intents/{reserved['intent']}/capture", headers=KEY, data=data).raise_for_status()

    with pytest.raises(OutcomeUnknown, match="another amount"):
        capture(later, reserved)


def test_a_lapsed_amount_charges_nothing_and_says_what_to_do(services, step, later, order):
    reserved = step.try_to(agent, step.request())
    services.expire(reserved["intent"])

    failure = refused(later, reserved)

    assert failure.code == codes.AUTHORISATION_LAPSED
    assert reserved["intent"] in str(failure)
    assert "resubmit this step to charge the payment method now" in str(failure)
    assert failure.public_message
    assert services.charged(order) == 0
    assert later.outcomes() == [("do", "capture", "refused")]


@pytest.mark.parametrize("generation", [1, 2])
def test_the_resubmission_after_a_lapse_charges_once_and_at_once(services, step, later, order, generation):
    reserved = step.try_to(agent, step.request())
    services.expire(reserved["intent"])
    refused(later, reserved)

    result = capture(later, reserved, attempt=2, generation=generation)

    assert result["intent"] != reserved["intent"]
    assert services.charged(order) == TOTAL
    assert capture(later, reserved, attempt=3, generation=generation) == result
    assert services.charged(order) == TOTAL


def test_a_later_reservation_is_captured_although_an_earlier_one_has_lapsed(services, step, later, order):
    services.behave(search_lag=3600)
    first = step.try_to(agent, step.request())
    services.expire(first["intent"])
    refused(later, first)
    second = step.try_to(agent, step.request(attempt=2, generation=2))

    assert capture(later, second, attempt=2, generation=2) == second
    assert services.status(second["intent"]) == "succeeded"
    assert services.charged(order) == TOTAL


def test_what_was_captured_and_given_back_is_not_taken_for_paid_and_is_charged_again_on_demand(services, step, later, order):
    reserved = step.try_to(agent, step.request())
    captured = capture(later, reserved)
    later.try_to(agent, later.undo(performed=captured))
    assert services.charged(order) == 0

    with pytest.raises(PermanentFailure) as failure:
        capture(later, reserved, attempt=2, generation=2)  # the run goes on from an earlier step

    assert failure.value.code == codes.AUTHORISATION_LAPSED
    assert capture(later, reserved, attempt=3, generation=3)["intent"] != reserved["intent"]
    assert services.charged(order) == TOTAL


def test_the_payment_after_a_lapse_may_ask_for_a_second_factor(services, step, later, order):
    reserved = step.try_to(agent, step.request())
    services.expire(reserved["intent"])
    refused(later, reserved)
    later.payload["payment_method"] = SECOND_FACTOR
    with pytest.raises(AwaitSignal):
        capture(later, reserved, attempt=2, generation=2)
    services.answer_bank(later.noted[codes.ACTION]["url"])

    result = capture(later, reserved, attempt=3, generation=2, wait_left=50.0, signal={})

    assert services.charged(order) == TOTAL
    assert services.status(result["intent"]) == "succeeded"


def test_an_order_whose_reservation_was_skipped_is_refused_and_charged_when_resubmitted(services, later, order):
    failure = refused(later, {})
    assert failure.code == "nothing_reserved"

    assert capture(later, {}, attempt=2, generation=2)["amount"] == TOTAL
    assert services.charged(order) == TOTAL


def test_an_amount_left_open_by_a_skipped_step_is_released_before_another_payment_is_made(services, step, later, order):
    reserved = step.try_to(agent, step.request())  # its answer was lost, and an operator skipped the step
    refused(later, {})

    result = capture(later, {}, attempt=2, generation=2)

    assert services.status(reserved["intent"]) == "canceled"
    assert result["intent"] != reserved["intent"]
    assert services.charged(order) == TOTAL


def test_an_order_paid_by_transfer_has_nothing_to_capture(services, later, order):
    for paid in {"method": codes.BANK_TRANSFER, "received": "25.80"}, {"received": "25.80"}:  # the second is written by hand
        assert capture(later, paid) == {"method": codes.BANK_TRANSFER}

    assert services.ledger("payment", order) == []


# ------------------------------------------------------------------------------------------------ undoing


def test_an_undo_before_the_capture_releases_the_amount(services, step, order):
    reserved = step.try_to(agent, step.request())

    undone = step.try_to(agent, step.undo(performed=reserved))

    assert undone == {"cancelled": [reserved["intent"]], "refunded": []}
    assert services.status(reserved["intent"]) == "canceled"
    assert {outcome for direction, _, outcome in step.outcomes() if direction == "do"} == {"undone"}


def test_an_undo_after_the_capture_gives_the_money_back_once(services, step, later, order):
    reserved = step.try_to(agent, step.request())
    captured = capture(later, reserved)

    first = later.try_to(agent, later.undo(performed=captured, results={codes.AUTHORISE: reserved}))
    second = step.try_to(agent, step.undo(performed=reserved))

    assert first["refunded"] == second["refunded"] == [reserved["intent"]]
    assert services.effects("payment", "refund", order) == 1
    assert services.charged(order) == 0
    assert ("do", "capture", "undone") in later.outcomes()


def test_an_undo_after_a_part_was_captured_at_the_service_gives_that_part_back(services, step, order):
    reserved = step.try_to(agent, step.request())
    data = {"amount_to_capture": "1000"}
    services.http.post(f"{services.url}/v1/payment_intents/{reserved['intent']}/capture", headers=KEY, data=data).raise_for_status()

    step.try_to(agent, step.undo(performed=reserved))

    assert services.charged(order) == 0


@pytest.mark.parametrize("mode", LOST)
def test_an_undo_without_an_answer_releases_all_the_same(services, step, order, mode):
    reserved = step.try_to(agent, step.request())
    services.faults("payment", mode)
    step.seconds = 0.5
    with suppress(OutcomeUnknown, TransientFailure):
        step.try_to(agent, step.undo(performed=reserved))
    services.clear()
    step.seconds = 4

    step.try_to(agent, step.undo(performed=reserved, attempt=2))

    assert services.status(reserved["intent"]) == "canceled"
    assert services.effects("payment", "cancel", order) == 1
    assert {outcome for direction, _, outcome in step.outcomes() if direction == "do"} == {"undone"}


def test_an_undo_of_an_unknown_capture_leaves_a_late_call_nothing_to_capture(services, step, later, order, monkeypatch):
    services.behave(search_lag=3600)
    reserved = step.try_to(agent, step.request())

    def freezes(name, *, amount, key):
        raise KeyboardInterrupt  # the process froze before its call left it

    with monkeypatch.context() as frozen:
        frozen.setattr(payment, "capture", freezes)
        with pytest.raises(KeyboardInterrupt):
            agent.perform(later.request(results={codes.AUTHORISE: reserved}))
    later.try_to(agent, later.undo(results={codes.AUTHORISE: reserved}))

    late = services.http.post(
        f"{services.url}/v1/payment_intents/{reserved['intent']}/capture",
        headers={**KEY, "Idempotency-Key": f"{order}:{codes.CAPTURE}:do:1:capture"},
        data={"amount_to_capture": "2580"},
    )
    assert late.status_code == 400
    assert services.charged(order) == 0


def test_a_late_confirmation_after_the_undo_reserves_nothing(services, step, order, monkeypatch):
    confirm, calls = payment.confirm, []

    def freezes(intent, **how):
        calls.append((intent, how))
        raise KeyboardInterrupt

    with monkeypatch.context() as frozen:
        frozen.setattr(payment, "confirm", freezes)
        with pytest.raises(KeyboardInterrupt):
            agent.perform(step.request())
    step.try_to(agent, step.undo())

    [(intent, how)] = calls
    with http.budget(http.time.monotonic() + 5), pytest.raises(payment.WrongState):
        confirm(intent, **how)
    assert services.status(intent) == "canceled"
