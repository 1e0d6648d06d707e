"""What several branches wait at the same time moves the run's time on once: the union of the waits, in any order of their ends."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest

from supervision import ChildRun, OnTimeout, Timer, WaitForSignal, parallel, plan, testing
from supervision.agent import CHILD, ChildAgent, registered
from supervision.models import Run
from supervision.operations import completing
from supervision.recovery import supervisor
from supervision.signals.sending import NewSignal, send_all
from supervision.store import sleeping
from supervision.workflow import started_by_steps
from tests.engine import kit
from tests.support import toy
from tests.workflows.conftest import HOUR
from tests.workflows.test_branch_time import DAY, left
from tests.workflows.test_branches import A, D

NEAR = 0.5  # hours: what a busy machine may take for a test


def signal(run, name):
    send_all([NewSignal(run=run, name=name, key="k", payload={})])


@pytest.fixture
def family(flow, monkeypatch):
    """Registers `waiting` of these steps beside `packing`, a child that waits for the signal `packed`."""
    monkeypatch.setitem(registered, CHILD, ChildAgent())

    def register(*steps, **fields):
        flow(WaitForSignal("packed", within=90 * DAY), name="packing")
        started_by_steps.add("packing")
        return flow(*steps, **fields)

    yield register
    started_by_steps.discard("packing")


def test_two_waits_at_the_same_time_extend_the_time_once(sas, flow):
    one, other = WaitForSignal("one", within=10 * HOUR), WaitForSignal("other", within=30 * HOUR)
    flow(*plan(A, parallel(one, other), D), complete_within=DAY)
    run = sas.start("waiting")
    assert left(run.key) == pytest.approx(54, abs=NEAR)
    sas.advance("4h")
    signal(run.key, "other")
    assert left(run.key) == pytest.approx(30, abs=NEAR)  # 24 of its own, and 6 that `one` still waits
    sas.advance("1h")
    signal(run.key, "one")
    assert left(run.key) == pytest.approx(24, abs=NEAR)


def test_two_waits_that_end_together_give_back_their_time_once(sas, flow):
    one, other = (WaitForSignal(name, signal="paid", within=10 * HOUR) for name in ("one", "other"))
    flow(*plan(A, parallel(one, other), D), complete_within=DAY)
    run = sas.start("waiting")
    sas.advance("1h")
    send_all([NewSignal(run=run.key, name="paid", key=str(n), payload={}) for n in range(2)])
    assert left(run.key) == pytest.approx(24, abs=NEAR)


def test_a_run_that_stops_gives_back_the_rest_of_its_waits_once(sas, flow):
    one, other = WaitForSignal("one", within=10 * HOUR), WaitForSignal("other", within=30 * HOUR)
    flow(*plan(A, parallel(one, other), D), complete_within=DAY)
    run = sas.start("waiting")
    [pk] = Run.objects.filter(key=run.key).values_list("pk", flat=True)
    sleeping.hold_back(pk, "do")
    assert left(run.key) == pytest.approx(24, abs=NEAR)


def test_a_wait_completed_by_hand_leaves_the_time_of_the_other(sas, flow):
    one, other = WaitForSignal("one", within=10 * HOUR), WaitForSignal("other", within=30 * HOUR)
    flow(*plan(A, parallel(one, other), D), complete_within=DAY)
    run = sas.start("waiting")
    completing.complete(run.key, by="ada", reason="seen", step="other", result={"came": True})
    assert left(run.key) == pytest.approx(34, abs=NEAR)


def test_two_branches_wake_at_the_same_moment_and_give_back_their_time_once(sas, flow):
    one, other = WaitForSignal("one", within=10 * HOUR), WaitForSignal("other", within=30 * HOUR)
    flow(*plan(A, parallel(one, other), D), complete_within=DAY)
    for _ in range(10):
        run = sas.start("waiting")
        testing.at_once(lambda run=run: signal(run.key, "one"), lambda run=run: signal(run.key, "other"))
        assert left(run.key) == pytest.approx(24, abs=NEAR)


@pytest.mark.parametrize("seed", range(12))
def test_the_time_is_what_a_simple_model_says(sas, family, seed):
    """The run's own time passes only while none of its branches sleeps. Ends by signal, by time, by a child, by hand."""
    rng = random.Random(seed)
    withins = {name: rng.choice((20, 40, 80)) for name in ("one", "two")}
    waits = [WaitForSignal(name, within=hours * HOUR, on_timeout=OnTimeout.GO_ON) for name, hours in withins.items()]
    ends = dict(withins) | {"pause": rng.choice((10, 50)), "pack": 3660 * 24.0}
    steps = (*waits, Timer("pause", lasts=ends["pause"] * HOUR), ChildRun("pack", workflow="packing", retry=toy.RETRY))
    family(*plan(A, parallel(*steps), D), complete_within=timedelta(days=300))
    run = sas.start("waiting")
    own = 300 * 24.0
    for _ in range(14):
        asleep = {name: end for name, end in ends.items() if end > 0}
        assert left(run.key) == pytest.approx(own + max(asleep.values(), default=0), abs=NEAR)
        act = rng.choice(("time", "time", "signal", "child", "hand"))
        awake = [name for name in ("one", "two") if name in asleep]
        if act == "time":
            hours = rng.choice((3, 15, 35))
            own -= max(0.0, hours - max(asleep.values(), default=0.0))
            ends = {name: end - hours for name, end in ends.items()}
            kit.hours_pass(hours)
            supervisor.sweep_once()
        elif act == "child" and "pack" in asleep:
            signal(f"{run.key}:pack:child", "packed")
            ends["pack"] = 0
        elif act == "signal" and awake:
            name = rng.choice(awake)
            signal(run.key, name)
            ends[name] = 0
        elif act == "hand" and awake:
            name = rng.choice(awake)
            completing.complete(run.key, by="ada", reason="seen", step=name, result={"came": True})
            ends[name] = 0
        testing.run_until_idle()
        if run.state == "Processed":
            break
    kit.healthy()
