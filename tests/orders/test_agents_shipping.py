"""The shipping agent books once per key. Its undo also blocks the key for later bookings."""

from __future__ import annotations

import time

import pytest

from orders.agents.shipping import ShippingAgent, listing
from orders.gateways import carrier, http
from orders.gateways.http import NoAnswer, NotSent
from supervision import OutcomeUnknown, PermanentFailure, TransientFailure
from supervision.states import ATTEMPTS_PER_EPOCH
from tests.support.requests import ADDRESS, StepOfOrder

LOST = ["error_after_effect", "timeout_after_effect", "reset_after_effect"]
agent = ShippingAgent()


@pytest.fixture
def step(order) -> StepOfOrder:
    return StepOfOrder(order, "book-shipment", seconds=2)


def test_the_agent_books_once_when_it_runs_twice_with_one_key(services, step, order):
    first, second = agent.perform(step.request()), agent.perform(step.request(attempt=2))

    assert first == second
    assert first["tracking_number"]
    [booked] = services.ledger("carrier", order)  # the second attempt looked for the shipment and found it
    assert booked["key"] == step.request().idempotency_key


@pytest.mark.parametrize("mode", LOST)
def test_the_agent_adopts_the_shipment_when_the_reply_is_lost(services, step, order, mode):
    services.faults("carrier", mode)

    result = agent.perform(step.request())

    services.clear()
    assert agent.perform(step.request(attempt=2)) == result
    assert services.effects("carrier", "create", order) == 1


@pytest.mark.parametrize("where", [{"postal_code": "00000"}, {"country": "AQ"}])
def test_an_address_that_is_not_served_is_a_permanent_failure(services, step, order, where):
    step.payload["shipping_address"] = {**ADDRESS, **where}

    with pytest.raises(PermanentFailure) as refused:
        agent.perform(step.request())

    assert refused.value.code == "address_not_serviceable"
    assert refused.value.public_message
    assert services.effects("carrier", "create", order) == 0


@pytest.mark.parametrize("status", [429, 503])
def test_an_unavailable_carrier_has_done_nothing_and_says_when_to_come_again(services, step, status):
    services.faults("carrier", "error_before", status=status)

    with pytest.raises(TransientFailure) as failure:
        agent.perform(step.request())

    assert not isinstance(failure.value, OutcomeUnknown)
    assert failure.value.retry_after == 1


def test_a_server_error_leaves_the_outcome_unknown_when_nobody_can_look(services, step):
    services.faults("carrier", "error_before", status=500)

    with pytest.raises(OutcomeUnknown):
        agent.perform(step.request())


def test_a_carrier_that_nobody_reaches_has_certainly_done_nothing(services, step, settings):
    settings.CARRIER_URL = "http://127.0.0.1:1"

    with pytest.raises(TransientFailure) as failure:
        agent.perform(step.request())

    assert not isinstance(failure.value, OutcomeUnknown)


def test_the_agent_keeps_within_its_budget_when_the_carrier_is_slow(services, step):
    services.faults("carrier", "slow", latency_ms=2000)
    step.seconds = 0.5
    request = step.request()

    with pytest.raises(OutcomeUnknown):
        agent.perform(request)

    assert request.remaining > 0


def test_undo_deletes_the_shipment_once(services, step, order):
    agent.perform(step.request())

    agent.compensate(step.undo())
    agent.compensate(step.undo(attempt=2))

    assert services.effects("carrier", "delete", order) == 1


@pytest.mark.parametrize("mode", LOST)
def test_undo_succeeds_when_its_reply_is_lost(services, step, order, mode):
    agent.perform(step.request())
    services.faults("carrier", mode)

    agent.compensate(step.undo())

    assert services.effects("carrier", "delete", order) == 1


def test_undo_of_something_that_never_happened_succeeds_and_bars_a_late_booking(services, step, order):
    agent.compensate(step.undo())

    with pytest.raises(PermanentFailure, check=lambda error: error.code == "deleted"):
        agent.perform(step.request())
    assert services.effects("carrier", "create", order) == 0


def book(key: str, order: str) -> None:
    with http.budget(time.monotonic() + 5):
        carrier.book(key, order, ADDRESS, [{"sku": "MUG-BLUE", "quantity": 1}])


def live(services, order) -> int:
    return services.effects("carrier", "create", order) - services.effects("carrier", "delete", order)


def test_the_ledger_tells_what_was_booked_and_deleted(services, step, order):
    booked = step.try_to(agent, step.request())
    [row] = step.rows.values()
    assert (row.key, row.service, row.external_id, row.outcome) == (f"{order}:book-shipment:do:1", "carrier", booked["shipment"], "done")

    step.try_to(agent, step.undo())

    assert step.outcomes() == [("do", "book", "undone"), ("undo", "delete", "done")]
    assert live(services, order) == 0


def test_a_refused_address_is_refused_in_the_ledger_too(services, step):
    step.payload["shipping_address"] = {**ADDRESS, "postal_code": "00000"}

    with pytest.raises(PermanentFailure):
        step.try_to(agent, step.request())

    assert step.outcomes() == [("do", "book", "refused")]


def test_the_second_attempt_looks_before_it_books_when_the_carrier_has_forgotten_the_key(services, step, order):
    first = step.try_to(agent, step.request())
    services.forget("carrier")

    again = step.try_to(agent, step.request(attempt=2))

    assert again == first
    assert services.effects("carrier", "create", order) == 1


def test_a_new_generation_deletes_what_earlier_ones_booked(services, step, order):
    step.try_to(agent, step.request())
    step.payload["shipping_address"] = {**ADDRESS, "line1": "Via Roma 2"}

    step.try_to(agent, step.request(attempt=2, generation=2))

    assert services.effects("carrier", "create", order) == 2
    assert live(services, order) == 1
    assert step.outcomes() == [("do", "book", "undone"), ("do", "book", "done")]


def test_undo_deletes_under_the_key_of_every_generation(services, step, order):
    agent.perform(step.request())
    step.rows.clear()  # an order that began before the ledger existed
    book(f"{order}:book-shipment:do:2", order)

    step.try_to(agent, step.undo(perform_key=f"{order}:book-shipment:do:3"))

    assert live(services, order) == 0


def test_what_the_database_has_lost_is_found_in_the_carriers_listing(services, step, order):
    agent.perform(step.request())
    book(f"{order}:book-shipment:do:2", order)  # lost with a failover
    book(f"{order}:book-shipment-2:do:1", order)  # a shipment of another step
    step.rows.clear()
    listing.forget()
    services.forget("carrier")

    step.try_to(agent, step.request(attempt=ATTEMPTS_PER_EPOCH + 1))
    assert live(services, order) == 2
    step.try_to(agent, step.undo(attempt=ATTEMPTS_PER_EPOCH + 1))

    assert live(services, order) == 1


def test_a_booking_in_doubt_stays_in_doubt_when_the_second_call_does_not_get_through(services, step, monkeypatch):
    calls = iter([NoAnswer("gave no answer"), NotSent("cannot be reached"), NotSent("cannot be reached"), NotSent("cannot be reached")])

    def fail(*_: object) -> None:
        raise next(calls)

    monkeypatch.setattr(carrier, "book", fail)

    with pytest.raises(OutcomeUnknown):
        step.try_to(agent, step.request())

    assert step.outcomes() == [("do", "book", "unknown")]
