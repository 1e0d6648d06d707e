"""A process whose threads are all held by calls that never return ends itself. One whose calls return late lives on."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest

from supervision.execution import runner
from supervision.testing import schedule, submit_many
from supervision.worker import consumption_check, held_threads, lifecycle
from supervision.worker.held_threads import Watch
from tests.crash.lane import Lane
from tests.engine import kit
from tests.hazards.test_deaf_workers import Clock
from tests.support import toy
from tests.support.shop import until

LANE = {"SUPERVISION_CANARY_SECONDS": "2"}  # five times as fast as in production
HANGS = {"FAILPOINTS": "agent.before_call=sleep=3600", "FAILPOINT_STEP": "charge-payment"}
ORDERS = 40  # more than a process has threads for calls


def states(lane: Lane) -> list[tuple[str, int]]:
    return [(str(state), int(count)) for state, count in lane.rows("SELECT process_state, count(*) FROM supervision_run GROUP BY 1")]


@pytest.mark.nightly
def test_a_worker_whose_calls_never_return_ends_itself_and_the_orders_go_on(lane: Lane) -> None:
    lane.all_work("agents", "scheduler")
    lane.work("agents", **HANGS)
    lane.manage("place_orders", "--count", str(ORDERS))
    lane.work("scheduler")

    assert lane.dies("agents", within=240) == consumption_check.EXIT_CODE
    assert "threads are held by calls whose time has long been over (steps: charge-payment)" in lane.log("agents")

    lane.work("agents")
    until(lambda: states(lane) == [("Processed", ORDERS)], within=120, what="every order to be Processed")


@pytest.mark.parametrize("queue", ["agent.payment", "agent.payment.2"])
def test_a_worker_is_watched_also_where_it_serves_one_partition_alone(queue: str, monkeypatch: pytest.MonkeyPatch):
    watched: list[object] = []
    monkeypatch.setattr(held_threads, "keep_watching", watched.append)
    for module, name in ((lifecycle.heartbeats, "keep_beating"), (consumption_check, "keep_watching"), (lifecycle, "_on_new_order")):
        monkeypatch.setattr(module, name, lambda *_, **__: None)
    app = SimpleNamespace(amqp=SimpleNamespace(queues=SimpleNamespace(consume_from=[queue])))
    runner.process.serve([queue])

    lifecycle.begin_beating(SimpleNamespace(hostname="agents@here", app=app, controller=SimpleNamespace(concurrency=1), pool=None))

    runner.process.reset()
    assert watched == [runner.process]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The watch's clock."""
    clock = Clock()
    clock.now = time.monotonic()
    monkeypatch.setattr(held_threads, "time", clock)
    return clock


def rounds_pass(clock: Clock, watch: Watch) -> list[int]:
    """Let the watch look again and again for as long as it waits; returns how many calls it named each time."""
    named = []
    for _ in range(int(2 * held_threads.HELD_ROUNDS) + 1):
        clock.now += consumption_check.every() / 2
        named.append(len(watch.held()))
    return named


@pytest.mark.usefixtures("engine")
def test_only_calls_that_stay_in_all_threads_after_their_time_are_named(clock, tuned, eventually):
    tuned(COMPLETE_WITHIN=3600)
    size = runner.process.pool.size
    hold, one = threading.Event(), threading.Event()
    first: list[str] = []

    def wait(request):
        first.append(request.run_key)
        (one if request.run_key == first[0] else hold).wait(60)

    toy.ALPHA.on_perform = wait
    runner.process.pool.forget()
    watch = Watch(runner.process)
    submit_many("toy-plain", [{"n": n} for n in range(size)])
    ((place, claims),) = schedule()
    worker = threading.Thread(target=lambda: (runner.run(place, claims), kit.connection.close()), daemon=True)
    worker.start()
    try:
        eventually(lambda: len(toy.ALPHA.performed) == size, what="a full pool")
        assert rounds_pass(clock, watch) == [0] * 13  # their time is not over
        clock.now += 3600
        assert rounds_pass(clock, watch) == [0] * 12 + [size]
        clock.now += 3600  # the process was frozen
        assert watch.held() == ()
        one.set()
        eventually(lambda: len(runner.process.under_way) < size, what="a call to return")
        assert rounds_pass(clock, watch) == [0] * 13
    finally:
        hold.set()
    worker.join(20)
    runner.process.finish_up(5)
    assert not runner.process.under_way
