"""What agents report about a failed call: was the service reached, did it accept our credentials, since when does it fail."""

from __future__ import annotations

import time

import pytest

from orders.agents.email import EmailAgent
from orders.agents.payment import PaymentAgent
from orders.agents.shipping import ShippingAgent
from sasproject import ports
from supervision import TransientFailure
from tests.support.requests import StepOfOrder

AGENTS = [pytest.param(ShippingAgent(), "carrier", id="carrier"), pytest.param(PaymentAgent(), "payment", id="payment")]


@pytest.fixture
def step(order) -> StepOfOrder:
    return StepOfOrder(order, "step", seconds=4)


@pytest.fixture
def nowhere(settings) -> None:
    """Addresses without a listening server."""
    port = ports.choose("127.0.0.1", None, usual=19000, but=set())
    settings.CARRIER_URL = settings.STRIPE_API_BASE = f"http://127.0.0.1:{port}"
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", port


def failure_of(agent, step) -> TransientFailure:
    with pytest.raises(TransientFailure) as failed:
        agent.perform(step.request())
    return failed.value


@pytest.mark.parametrize("agent", [*(agent.values[0] for agent in AGENTS), EmailAgent()], ids=lambda agent: agent.name)
def test_a_service_that_nobody_answers_for_was_not_reached(nowhere, step, agent):
    failure = failure_of(agent, step)

    assert (failure.unreachable, failure.refuses_us) == (True, False)


@pytest.mark.parametrize(("agent", "service"), AGENTS)
@pytest.mark.parametrize("status", [401, 403])
def test_a_service_that_does_not_accept_our_key_refuses_us(services, step, agent, service, status):
    services.faults(service, "error_before", status=status)

    failure = failure_of(agent, step)

    assert (failure.unreachable, failure.refuses_us) == (False, True)
    assert "API_KEY" in str(failure)


@pytest.mark.parametrize(("agent", "service"), AGENTS)
def test_a_service_that_answers_with_an_error_was_reached_and_fails_since_its_first_one(services, step, agent, service):
    services.faults(service, "error_before", status=500)
    began = time.monotonic()

    failure = failure_of(agent, step)

    assert (failure.unreachable, failure.refuses_us) == (False, False)
    assert failure.since is not None
    assert began < failure.since < time.monotonic()


@pytest.mark.parametrize(("agent", "service"), AGENTS)
def test_time_of_our_own_that_is_over_says_nothing_of_the_service(services, order, agent, service):
    failure = failure_of(agent, StepOfOrder(order, "step", seconds=0))

    assert (failure.unreachable, failure.refuses_us, failure.since) == (False, False, None)
