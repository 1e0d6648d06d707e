"""The payment agent charges an order once, whichever message is lost, and charges nothing after an undo."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest

from orders.agents.payment import PaymentAgent, minor_units
from orders.gateways import http, payment
from supervision import OutcomeUnknown, PermanentFailure, TransientFailure
from tests.support.requests import StepOfOrder

TOTAL = 2580
LOST = ["error_after_effect", "timeout_after_effect", "reset_after_effect"]
agent = PaymentAgent()


def operations(services, order) -> list[tuple[str, bool]]:
    return [(entry["operation"], entry["effect"]) for entry in services.ledger("payment", order)]


def test_the_agent_charges_the_total_in_two_calls(services, step, order):
    result = agent.perform(step.request())

    assert operations(services, order) == [("create", True), ("confirm", True)]
    assert services.charged(order) == TOTAL
    assert result == {"intent": step.noted["intent"], "amount": TOTAL, "currency": "EUR"}
    keys = [entry["key"].removeprefix(f"{order}:charge-payment:do:1:") for entry in services.ledger("payment", order)]
    assert keys == ["create", "confirm"]


def test_the_agent_charges_once_when_it_runs_twice_with_one_key(services, step, order):
    first = agent.perform(step.request())
    second = agent.perform(step.request(attempt=2))

    assert first == second
    assert services.charged(order) == TOTAL
    assert services.effects("payment", "confirm", order) == 1


@pytest.mark.parametrize("mode", LOST)
def test_the_agent_adopts_what_was_done_when_the_reply_is_lost(services, step, order, mode):
    services.faults("payment", mode)

    agent.perform(step.request())

    assert services.charged(order) == TOTAL
    assert services.effects("payment", "create", order) == 1


@pytest.mark.parametrize("mode", LOST)
def test_the_next_attempt_adopts_the_charge_when_the_first_one_never_learned_of_it(services, step, order, mode):
    step.before_checkpoint = lambda: services.faults("payment", mode)
    impatient = StepOfOrder(order, "charge-payment", seconds=0.4, before_checkpoint=step.before_checkpoint, noted=step.noted)
    with suppress(OutcomeUnknown):
        agent.perform(impatient.request())
    services.clear()

    agent.perform(step.request(attempt=2))

    assert services.charged(order) == TOTAL
    assert services.effects("payment", "confirm", order) == 1


def test_the_next_attempt_adopts_the_charge_when_even_the_checkpoint_is_gone(services, step, order):
    agent.perform(step.request())
    step.noted.clear()

    agent.perform(step.request(attempt=2))
    agent.perform(step.request(attempt=1, generation=2))

    assert operations(services, order) == [("create", True), ("confirm", True)]


def test_a_stored_server_error_does_not_block_the_next_attempt(services, step, order):
    services.faults("payment", "error_before")
    with pytest.raises(OutcomeUnknown):
        agent.perform(step.request())
    services.clear()

    agent.perform(step.request(attempt=2))

    assert services.charged(order) == TOTAL
    assert services.effects("payment", "create", order) == 1


def test_a_stored_server_error_of_the_charge_does_not_block_the_next_attempt(services, step, order):
    step.before_checkpoint = lambda: services.faults("payment", "error_before")
    with pytest.raises(OutcomeUnknown):
        agent.perform(step.request())
    services.clear()

    agent.perform(step.request(attempt=2))

    assert services.charged(order) == TOTAL
    assert services.ledger("payment", order)[-1]["key"].endswith(":confirm:2")


def test_the_agent_gets_through_a_service_that_fails_half_of_the_time(services, step, order):
    services.faults("payment", "error_before", probability=0.5)

    for attempt in range(1, 30):
        try:
            agent.perform(step.request(attempt=attempt))
            break
        except OutcomeUnknown:
            continue

    assert services.charged(order) == TOTAL


def test_a_declined_card_is_a_permanent_failure_that_leaves_nothing_to_charge(services, step, order):
    step.payload["payment_method"] = "pm_card_visa_chargeDeclinedInsufficientFunds"

    with pytest.raises(PermanentFailure) as refused:
        agent.perform(step.request())

    assert refused.value.code == "card_declined"
    assert "insufficient_funds" in str(refused.value)
    assert refused.value.public_message
    assert operations(services, order) == [("create", True), ("confirm", False), ("cancel", True)]


def test_a_declined_order_is_charged_once_when_it_is_resubmitted_with_another_card(services, step, order):
    step.payload["payment_method"] = "pm_card_visa_chargeDeclined"
    with pytest.raises(PermanentFailure):
        agent.perform(step.request())
    step.payload["payment_method"] = "pm_card_visa"

    agent.perform(step.request(attempt=2, generation=2))
    agent.perform(step.request(attempt=3, generation=2))

    assert services.charged(order) == TOTAL
    assert services.effects("payment", "confirm", order) == 1


def test_a_declined_order_is_charged_when_it_is_resubmitted_under_the_same_key(services, step, order):
    step.payload["payment_method"] = "pm_card_visa_chargeDeclined"
    with pytest.raises(PermanentFailure):
        agent.perform(step.request())
    step.payload["payment_method"] = "pm_card_visa"

    agent.perform(step.request(attempt=2))

    assert services.charged(order) == TOTAL


def test_a_decline_whose_reply_is_lost_is_still_a_decline(services, step, order, eventually):
    step.payload["payment_method"] = "pm_card_visa_chargeDeclined"
    step.before_checkpoint = lambda: services.faults("payment", "slow", latency_ms=700)
    step.seconds = 1
    with pytest.raises(OutcomeUnknown):
        agent.perform(step.request())
    services.clear()
    eventually(lambda: ("confirm", False) in operations(services, order))
    step.seconds = 4

    with pytest.raises(PermanentFailure, check=lambda error: error.code == "card_declined"):
        agent.perform(step.request(attempt=2))
    assert operations(services, order)[-1] == ("cancel", True)
    assert services.charged(order) == 0


def test_an_unknown_payment_method_is_a_permanent_failure(services, step, order):
    step.payload["payment_method"] = "pm_card_of_nobody"

    with pytest.raises(PermanentFailure, check=lambda error: error.code == "payment_refused"):
        agent.perform(step.request())
    assert services.charged(order) == 0


def test_a_service_that_nobody_reaches_has_certainly_done_nothing(services, step, order, settings):
    settings.STRIPE_API_BASE = "http://127.0.0.1:1"

    with pytest.raises(TransientFailure) as failure:
        agent.perform(step.request())

    assert not isinstance(failure.value, OutcomeUnknown)
    assert "cannot be reached" in str(failure.value)


def test_a_service_that_breaks_connections_leaves_the_outcome_unknown(services, step):
    services.faults("payment", "down")

    with pytest.raises(OutcomeUnknown):
        agent.perform(step.request())


def test_a_throttled_call_passes_the_services_wish_on(services, step):
    services.faults("payment", "error_before", status=429)

    with pytest.raises(TransientFailure) as failure:
        agent.perform(step.request())

    assert failure.value.retry_after == 1
    assert not isinstance(failure.value, OutcomeUnknown)


def test_the_agent_keeps_within_its_budget_when_the_service_is_slow(services, step, order):
    services.faults("payment", "slow", latency_ms=3000)
    step.seconds = 0.6
    request = step.request()

    with pytest.raises(TransientFailure):
        agent.perform(request)

    assert request.remaining > 0


def test_undo_gives_the_money_back_once(services, step, order):
    performed = agent.perform(step.request())

    first = agent.compensate(step.undo(performed))
    agent.compensate(step.undo(performed, attempt=2))

    assert first == {"cancelled": [], "refunded": [performed["intent"]]}
    assert services.charged(order) == 0
    assert services.effects("payment", "refund", order) == 1


@pytest.mark.parametrize("mode", LOST)
def test_undo_gives_the_money_back_once_when_its_reply_is_lost(services, step, order, mode):
    agent.perform(step.request())
    services.faults("payment", mode)

    agent.compensate(step.undo())

    assert services.charged(order) == 0
    assert services.effects("payment", "refund", order) == 1


def test_undo_goes_on_after_a_stored_server_error(services, step, order):
    agent.perform(step.request())
    services.faults("payment", "error_before")
    with pytest.raises(TransientFailure):
        agent.compensate(step.undo())
    services.clear()

    agent.compensate(step.undo(attempt=2))

    assert services.charged(order) == 0


def test_undo_of_something_that_never_happened_succeeds(services, step, order):
    assert agent.compensate(step.undo()) == {"cancelled": [], "refunded": []}
    assert services.ledger("payment", order) == []


def test_a_charge_that_was_given_back_is_not_taken_for_a_creation_whose_reply_is_lost(services, step, order, monkeypatch):
    """The run goes on from this step. The search lags behind: it shows the first charge, and not the new payment yet."""
    first = agent.perform(step.request())
    agent.compensate(step.undo(first))
    search = payment.of_order
    monkeypatch.setattr(payment, "of_order", lambda name: [one for one in search(name) if one.id == first["intent"]])
    services.faults("payment", "reset_after_effect")

    second = agent.perform(step.request(generation=2))

    assert second["intent"] != first["intent"]
    assert services.charged(order) == TOTAL


def test_a_charge_that_people_gave_back_meanwhile_is_not_taken_for_the_payment(services, step, order):
    first = agent.perform(step.request())
    with http.budget(time.monotonic() + 20):
        payment.refund(first["intent"], key=f"{order}:at-the-service")

    second = agent.perform(step.request(attempt=2))

    assert second["intent"] != first["intent"]
    assert services.charged(order) == TOTAL


def test_a_worker_that_froze_before_its_charge_charges_nothing_after_the_undo(services, step, order):
    calls = []

    def undone_meanwhile():
        # The checkpoint is durable and the worker freezes. The claim expires, the order is undone, and then the worker wakes.
        if calls:
            step.claim_lost = True
            return
        calls.append("frozen")
        step.noted["intent"] = services.ledger("payment", order)[-1]["intent"]
        agent.compensate(step.undo())

    step.before_checkpoint = undone_meanwhile

    with pytest.raises(TransientFailure):
        agent.perform(step.request())

    assert services.charged(order) == 0
    assert ("confirm", False) in operations(services, order)


def test_a_worker_that_lost_its_claim_before_its_first_call_makes_none(services, step, order):
    step.claim_lost = True

    with pytest.raises(TransientFailure):
        agent.perform(step.request())

    assert operations(services, order) == []


def test_a_worker_that_lost_its_claim_before_the_checkpoint_charges_nothing(services, step, order):
    step.before_checkpoint = lambda: setattr(step, "claim_lost", True)

    with pytest.raises(TransientFailure):
        agent.perform(step.request())

    assert operations(services, order) == [("create", True)]


def test_two_workers_at_once_charge_an_order_once(services, step, order):
    step.before_checkpoint = lambda: None
    slow = StepOfOrder(order, "charge-payment", noted=step.noted)
    slow.before_checkpoint = lambda: (setattr(slow, "before_checkpoint", lambda: None), agent.perform(step.request(attempt=2)))

    agent.perform(slow.request())

    assert services.charged(order) == TOTAL
    assert services.effects("payment", "confirm", order) == 1


@pytest.mark.parametrize(
    ("total", "currency", "units"),
    [
        ("25.80", "EUR", 2580),
        ("25", "EUR", 2500),
        ("0.01", "USD", 1),
        ("300", "JPY", 300),
        ("1.23", "KWD", 1230),
        ("5", "UGX", 500),
        ("5.00", "ISK", 500),
        ("5.50", "HUF", 550),
        ("12.50", "RSD", 1250),
        ("12", "MGA", 12),
        ("5.50", "TWD", 550),
    ],
)
def test_money_is_counted_in_minor_units(total, currency, units):
    assert minor_units(total, currency) == units


@pytest.mark.parametrize(
    ("total", "currency"),
    [
        *[("0", "EUR"), ("-1", "EUR"), ("1.005", "EUR"), ("x", "EUR"), ("1.5", "JPY"), ("NaN", "EUR"), ("Infinity", "EUR")],
        *[("5.50", "UGX"), ("5.50", "ISK"), ("1.234", "KWD")],
    ],
)
def test_an_amount_that_does_not_exist_is_refused_for_good(total, currency):
    with pytest.raises(PermanentFailure):
        minor_units(total, currency)
