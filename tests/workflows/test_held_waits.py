"""Held time of steps that sleep, and of runs that go back: each wait counts once, and only while the step waits."""

from __future__ import annotations

import pytest

from supervision import AwaitSignal, TransientFailure, WaitForSignal
from supervision.operations import completing, pauses
from supervision.recovery import held_time, supervisor
from tests.engine import kit
from tests.support import toy
from tests.workflows import test_branch_time
from tests.workflows.conftest import HOUR, asleep
from tests.workflows.test_branch_time import DAY
from tests.workflows.test_branches import A, B

NEAR = 0.1  # hours: what a busy machine may take for a test


@pytest.fixture
def handing_over(monkeypatch):
    """The toy agents may wait for this signal."""
    monkeypatch.setattr(toy.ToyAgent, "signals", ("captured",), raising=False)


def left(run):
    """Hours until the run's complete_by, once its held time is counted."""
    held_time.extend([kit.run_of(run.key).pk])
    return test_branch_time.left(run.key)


def pause():
    pauses.pause("all", reason="an inventory", by="ada")


def lift():
    pauses.lift("all", by="ada")


def test_what_a_step_waited_before_it_fell_asleep_counts_as_held(sas, flow, handing_over):
    flow(A, complete_within=DAY)
    sas.fake("a", raises=AwaitSignal("captured", within=10 * HOUR), times=1)
    sas.fake("a", raises=TransientFailure("busy"), times=1)
    run = sas.start("waiting")
    pause()
    kit.hours_pass(20)
    lift()
    sas.run()
    assert asleep() == 1
    assert left(run) == pytest.approx(34, abs=NEAR)


def test_what_a_step_waited_after_it_woke_counts_as_held_also_when_it_is_tried_again(sas, flow, handing_over):
    flow(A, complete_within=DAY)
    sas.fake("a", raises=TransientFailure("busy"), times=1)
    sas.fake("a", raises=AwaitSignal("captured", within=10 * HOUR), times=1)
    run = sas.start("waiting")
    kit.hours_pass(1)
    pause()
    run.signal("captured")
    kit.hours_pass(20)
    lift()
    sas.run()
    assert (asleep(), run.steps) == (0, {"a": "Pending"})
    assert left(run) == pytest.approx(24, abs=NEAR)


def test_a_step_that_sleeps_several_times_is_held_between_its_waking_and_its_next_sleep(sas, flow):
    flow(WaitForSignal("paid", within=10 * HOUR, remind_after=(HOUR,), remind=lambda _request: None), complete_within=DAY)
    run = sas.start("waiting")
    pause()
    kit.hours_pass(3)
    supervisor.sweep_once()  # two hours late
    kit.hours_pass(2)
    lift()
    sas.run()
    assert asleep() == 1
    assert left(run) == pytest.approx(29, abs=NEAR)  # its own day, and what is left of the wait


def test_a_wait_that_is_ended_by_hand_counts_once(sas, flow):
    flow(WaitForSignal("paid", within=30 * HOUR), B, complete_within=DAY)
    run = sas.start("waiting")
    pause()
    kit.hours_pass(20)
    completing.complete(run.key, by="ada", reason="seen", result={"came": True})
    assert left(run) == pytest.approx(24, abs=NEAR)
