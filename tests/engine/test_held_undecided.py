"""Held time of an order whose failures cannot be attributed: it must not stop because its time is over."""

from __future__ import annotations

import pytest

from supervision import agent as agents
from supervision.errors import TransientFailure
from supervision.governance import circuit_breaker
from supervision.intake import consuming
from supervision.recovery import supervisor
from supervision.testing import run_until_idle, step, submit

from . import kit

pytestmark = pytest.mark.usefixtures("engine", "service")


@pytest.fixture
def service(monkeypatch):
    """Only agent alpha calls a service."""
    kit.only_agent_with_a_service(monkeypatch, "alpha")


def waiting() -> list[str]:
    key = submit("toy-plain", {"n": 0})
    consuming.consume_batch(born=False)
    return [key]


def sweep() -> None:
    supervisor.sweep_once()


def test_a_lone_order_whose_service_fails_for_a_day_is_not_stopped_for_its_time():
    agents.get_agent("alpha").on_perform = kit.raising(TransientFailure("500"))
    (key,) = waiting()
    for _ in range(4):
        run_until_idle()
        kit.hours_pass(7)
        circuit_breaker.forget()
        sweep()

    assert (kit.state(key), step(key, "alpha-step").failure_count) == ("Processing", 0)
    agents.get_agent("alpha").on_perform = None
    kit.hours_pass(1)
    run_until_idle()
    assert kit.state(key) == "Processed"


def test_an_order_that_fails_while_others_succeed_is_stopped_when_its_time_is_over():
    def poisonous(request):
        if request.payload["n"] == 0:
            raise TransientFailure("500")
        return {}

    agents.get_agent("alpha").on_perform = poisonous
    (key,) = waiting()
    run_until_idle()
    circuit_breaker.forget()
    submit("toy-plain", {"n": 1})
    run_until_idle()
    kit.hours_pass(25)
    sweep()

    assert kit.state(key) == "Error"
