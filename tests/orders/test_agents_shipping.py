"""The shipping agent books once per key and bars the key when it undoes."""

from __future__ import annotations

import pytest

from orders.agents.shipping import ShippingAgent
from supervision import OutcomeUnknown, PermanentFailure, TransientFailure
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
    [booked, replayed] = services.ledger("carrier", order)
    assert (booked["effect"], replayed["effect"]) == (True, False)
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

    with pytest.raises(PermanentFailure) as refused:
        agent.perform(step.request())

    assert refused.value.code == "deleted"
    assert services.effects("carrier", "create", order) == 0
