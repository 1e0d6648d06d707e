"""Local pick-up: an idle agents process schedules a new order itself, without a message. The scheduler waits a moment for that."""

from __future__ import annotations

import threading
import time

import pytest
from celery.concurrency import get_implementation

from supervision.dispatch import scheduler
from supervision.execution import local_pickup, runner
from supervision.governance import circuit_breaker
from supervision.intake import consuming
from supervision.models import Resource
from supervision.operations import operator_verbs, pauses
from supervision.store import step_verbs
from supervision.testing import make_due, run_of, schedule, step, submit, submit_many
from supervision.worker import lifecycle
from supervision.workflow import StepPosition
from tests.engine import kit
from tests.support import toy

pytestmark = pytest.mark.usefixtures("engine")


@pytest.fixture(autouse=True)
def rested(tuned):
    """Without a hold-off, an agents process counts as idle as soon as it has no work."""
    tuned(HOLD_OFF_SECONDS=0)


@pytest.fixture
def sent(broker, unsent_fails):
    """A function that returns the chains sent since its last call: (position, runs)."""

    def look() -> list[tuple[int, list[int]]]:
        agents = (toy.ALPHA, toy.BETA, toy.GAMMA)
        bodies = [args for agent in agents for _, (args, _, _) in broker(agent.queue)]
        return [(place[-1], [run_id for run_id, _ in claims]) for claims, *place in bodies]

    return look


@pytest.fixture
def all_served(engine):
    runner.process.serve(agent.queue for agent in (toy.ALPHA, toy.BETA, toy.GAMMA))


@pytest.mark.usefixtures("all_served")
def test_an_idle_process_goes_all_the_way_with_a_new_order_without_a_message(sent):
    key = submit("toy", {"n": 1})

    local_pickup.schedule()

    assert (kit.state(key), kit.states(key)) == ("Processed", ["Processed"] * 3)
    assert [len(agent.performed) for agent in (toy.ALPHA, toy.BETA, toy.GAMMA)] == [1, 1, 1]
    assert sent() == []
    assert kit.healthy()


def test_what_begins_with_the_commit_is_what_its_row_says():
    key = submit("toy", {"n": 1, "text": "ä", "pair": [1, 2.5, None]})

    before = time.monotonic()
    ((place, (begun,)),) = consuming.consume_batch(performs=lambda *_: True).begun.items()

    row = step(key, "alpha-step")
    assert (begun.run_id, begun.attempt, begun.generation, begun.idempotency_key, begun.checkpoint, begun.key, begun.payload) == (
        row.run_id, row.attempt, row.generation, row.idempotency_key, {}, key, run_of(key).payload,
    )  # fmt: skip
    assert row.process_state == "Processing"
    assert row.started_at is not None
    budget = place.definition.step(0).complete_within.total_seconds()
    assert (row.complete_by - row.started_at).total_seconds() == pytest.approx(budget)
    assert before < begun.deadline <= time.monotonic() + budget
    assert step_verbs.start(place, [begun.claim]) == [], "START refuses a message for it"


def test_an_order_that_began_in_a_process_that_died_is_done_by_another_under_its_key():
    key = submit("toy", {"n": 1})
    consuming.consume_batch(performs=lambda *_: True)
    before = step(key, "alpha-step").idempotency_key

    kit.expire_and_sweep(key)
    make_due(key)
    assert kit.idle_state(key) == "Processed"
    assert [request.idempotency_key for request in toy.ALPHA.performed] == [before]
    assert step(key, "alpha-step").failure_count == 1
    assert kit.healthy()


@pytest.mark.usefixtures("all_served")
def test_a_process_with_work_in_hand_leaves_new_orders_to_the_scheduler(sent, tuned):
    tuned(HOLD_OFF_SECONDS=0.2)
    runner.process.cohorts.append(StepPosition("toy", 1, "do", 0))
    submit("toy", {"n": 1})
    local_pickup.schedule()
    assert toy.ALPHA.performed == []
    runner.process.idle_since = time.monotonic()
    runner.process.cohorts.pop()
    local_pickup.schedule()
    assert toy.ALPHA.performed == [], "the process has not been idle for long enough"

    assert scheduler.consume()

    assert [position for position, _ in sent()] == [0]


@pytest.mark.usefixtures("all_served")
def test_a_process_whose_calls_are_under_way_leaves_new_orders_to_the_scheduler():
    hold, running = threading.Event(), threading.Event()

    def slow(_: object) -> None:
        running.set()
        hold.wait(10)

    pool = runner.process.pool
    pool.run(slow, [1], "slow")
    assert running.wait(10)
    try:
        submit("toy", {"n": 1})
        local_pickup.schedule()
        assert toy.ALPHA.performed == []
    finally:
        hold.set()
        assert pool.wait_until_idle(10)

    local_pickup.schedule()

    assert len(toy.ALPHA.performed) == 1


@pytest.mark.parametrize(
    ("served", "at", "states"),
    [
        (toy.BETA, 0, ["Processing", "Pending", "Pending"]),
        (toy.ALPHA, 1, ["Processed", "Processing", "Pending"]),
    ],
    ids=["the first", "the second"],
)
def test_where_an_agent_is_elsewhere_the_order_is_sent_there(served, at, states, sent):
    runner.process.serve({served.queue})
    key = submit("toy", {"n": 1})

    local_pickup.schedule()

    assert sent() == [(at, [run_of(key).pk])]
    assert kit.states(key) == states
    assert step(key, ("alpha-step", "beta-step")[at]).started_at is None


@pytest.mark.usefixtures("all_served")
def test_an_order_that_must_not_begin_does_not_begin(sent):
    first = submit("toy", {"n": 1})
    operator_verbs.cancel(first, by="customer", reason="changed my mind")
    local_pickup.schedule()
    assert kit.state(first) == "Cancelled"
    assert toy.ALPHA.performed == []

    pauses.pause("workflow", "toy", by="operator", reason="stocktaking")
    held = submit("toy", {"n": 2})
    local_pickup.schedule()
    assert kit.state(held) == "Pending"
    assert toy.ALPHA.performed == []
    assert sent() == []


@pytest.mark.usefixtures("all_served")
def test_an_order_does_not_begin_before_those_who_wait(sent):
    (older,) = kit.waiting(workflow="toy")
    submit("toy", {"n": 2})

    local_pickup.schedule()

    assert toy.ALPHA.performed == []
    ((_, claims), *_) = schedule()
    assert claims[0].run_id == run_of(older).pk


@pytest.mark.usefixtures("all_served")
def test_orders_that_come_together_go_together():
    keys = submit_many("toy", [{"n": n} for n in range(5)])

    local_pickup.schedule()

    assert {kit.state(key) for key in keys} == {"Processed"}
    assert kit.healthy()


@pytest.mark.usefixtures("all_served")
def test_one_process_that_is_everything_performs_what_comes(sent):
    key = submit("toy", {"n": 1})

    local_pickup.schedule_or_consume()

    assert kit.state(key) == "Processed"
    assert sent() == []


def test_only_a_worker_that_schedules_orders_listens(tuned):
    assert local_pickup.applies_to({toy.ALPHA.queue})
    assert not local_pickup.applies_to({"agent.nothing"})
    tuned(LOCAL_PICKUP=False)
    assert not local_pickup.applies_to({toy.ALPHA.queue})


# -------------------------------------------------------------------------------------------------- the scheduler


def test_a_scheduler_lets_others_go_first_until_it_did_so_in_vain_and_again_after_a_while(sent, monkeypatch):
    monkeypatch.setattr(local_pickup, "GRACE_SECONDS", 0.2)
    monkeypatch.setattr(local_pickup, "FIRST_BACKOFF_SECONDS", 2.0)
    consume = local_pickup.of_scheduler()

    def seconds() -> float:
        began = time.monotonic()
        consume()
        return time.monotonic() - began

    assert seconds() >= 0.2, "another process took the announced order"
    assert seconds() >= 0.2
    submit("toy", {"n": 1})
    assert seconds() >= 0.2, "no other process took it"
    assert len(sent()) == 1
    hurried = time.monotonic()
    submit("toy", {"n": 2})
    assert seconds() < 0.2, "it does not wait after it waited in vain"
    assert len(sent()) == 1

    kit.until(lambda: seconds() >= 0.2, within=10)
    assert time.monotonic() - hurried >= 1.5


def test_an_order_whose_first_service_has_limits_is_not_begun(sent):
    Resource.objects.create(name="alpha", capacity=1)
    circuit_breaker.forget()
    runner.process.serve({toy.ALPHA.queue})
    key = submit("toy", {"n": 1})

    local_pickup.schedule()

    assert step(key, "alpha-step").started_at is None
    assert toy.ALPHA.performed == []


@pytest.mark.parametrize(("pool", "here"), [("threads", True), ("solo", True), ("prefork", False)])
def test_only_a_pool_in_this_process_is_known_to_be_idle(pool, here):
    assert lifecycle._works_here(get_implementation(pool)) is here


def test_each_kind_of_worker_does_its_own_when_an_order_is_announced(tuned):
    assert lifecycle._on_new_order(["supervisor"], begins=False) is None
    assert lifecycle._on_new_order(["agent.alpha"], begins=True) is local_pickup.schedule
    assert lifecycle._on_new_order(["submissions", "agent.alpha"], begins=True) is local_pickup.schedule_or_consume
    assert lifecycle._on_new_order(["submissions"], begins=False).__func__ is local_pickup._Grace.consume
    tuned(LOCAL_PICKUP=False)
    assert lifecycle._on_new_order(["submissions"], begins=False) is scheduler.consume, "there is no process to wait for"
