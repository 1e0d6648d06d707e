"""An order has a deadline of its own (X7): no step gets a later one, and an outage that no one can judge does not use it up."""

from __future__ import annotations

import time

import pytest

from supervision.errors import TransientFailure
from supervision.governance import circuit_breaker
from supervision.recovery import supervisor
from supervision.store import step_verbs
from supervision.testing import run_until_idle, step
from tests.engine import kit
from tests.support import toy

pytestmark = pytest.mark.usefixtures("engine")


def nearly_over(key: str) -> None:
    """The order has ten seconds left; its steps may take thirty each."""
    kit.fetch("UPDATE supervision_run SET complete_by = now() + interval '10 s' WHERE key = %s", [key])


def remaining(key: str, name: str) -> float:
    """By how many seconds the step's deadline lies before the order's."""
    rows = kit.fetch(
        "SELECT extract(epoch FROM r.complete_by - s.complete_by)::float8 FROM supervision_stepstate s"
        " JOIN supervision_run r ON r.id = s.run_id WHERE r.key = %s AND s.name = %s",
        [key, name],
    )
    return rows[0][0]


def test_a_step_that_starts_is_given_no_longer_than_its_order_has():
    key, place, claims = kit.claimed()
    nearly_over(key)

    [item] = step_verbs.start(place, claims)

    assert remaining(key, "alpha-step") == 0
    assert 0 < item.deadline - time.monotonic() <= 10


@pytest.mark.parametrize("go_on", [False, True])
def test_a_step_that_follows_is_given_no_longer_than_its_order_has(go_on):
    key, place, items = kit.started()
    bystander, *_ = kit.started()
    nearly_over(key)

    step_verbs.finish_at(place, step_verbs.Successor.STARTED if go_on else step_verbs.Successor.CLAIMED)([(items[0], {})])

    assert remaining(key, "beta-step") == 0
    assert remaining(bystander, "alpha-step") > 80_000


def test_a_step_is_not_started_when_its_orders_time_is_over():
    key, place, claims = kit.claimed()
    kit.fetch("UPDATE supervision_run SET complete_by = now() - interval '1 ms' WHERE key = %s", [key])

    assert step_verbs.start(place, claims) == []
    assert step(key, "alpha-step").started_at is None


@pytest.fixture
def failing(monkeypatch):
    """Only agent alpha calls a service, which fails for the order n = 0."""

    def poisonous(request):
        if request.payload["n"] == 0:
            raise TransientFailure("500")

    kit.only_agent_with_a_service(monkeypatch, "alpha")
    toy.ALPHA.on_perform = poisonous


def test_a_lone_order_whose_service_fails_for_a_day_is_not_stopped_for_its_time(failing):
    (key,) = kit.waiting()
    for _ in range(4):
        run_until_idle()
        kit.hours_pass(7)
        circuit_breaker.forget()
        supervisor.sweep_once()

    assert (kit.state(key), step(key, "alpha-step").failure_count) == ("Processing", 0)
    toy.ALPHA.on_perform = None
    kit.hours_pass(1)
    assert kit.idle_state(key) == "Processed"


def test_an_order_that_fails_while_others_succeed_is_stopped_when_its_time_is_over(failing):
    (key,) = kit.waiting()
    run_until_idle()
    circuit_breaker.forget()
    kit.ran()
    kit.hours_pass(25)
    supervisor.sweep_once()

    assert kit.state(key) == "Error"
