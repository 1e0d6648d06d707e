"""Held time of steps that sleep, and of runs that go back: each wait counts once, and only while the step waits."""

from __future__ import annotations

import pytest

from supervision import AwaitSignal, PermanentFailure, TransientFailure, WaitForSignal, parallel, plan, testing
from supervision.models import Resource
from supervision.operations import completing, pauses, resuming
from supervision.recovery import held_time, supervisor
from supervision.store import step_verbs
from tests.engine import kit
from tests.workflows import test_branch_time
from tests.workflows.conftest import HOUR, asleep
from tests.workflows.test_branch_time import DAY
from tests.workflows.test_branches import A, B, C, D, step
from tests.workflows.test_handed_over import handing_over

__all__ = ["handing_over"]

NEAR = 0.1  # hours: what a busy machine may take for a test


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


# ------------------------------------------------------------------------------------------------------- going back


def limit(monkeypatch, agent):
    """Let each step of this agent wait behind the limit of its service."""
    kit.only_agent_with_a_service(monkeypatch, agent)
    Resource.objects.filter(name="the-service").update(capacity=1)


def finish(label):
    """One pass of the scheduler: this step is done. The claims of the others are lost."""
    [(place, claims)] = [sent for sent in kit.schedule() if sent[0].label == label]
    step_verbs.finish_at(place, step_verbs.Successor.DUE)([(item, {}) for item in step_verbs.start(place, claims)])
    testing.expire()
    supervisor.sweep_once()


def a_day_passes(key):
    """The run's state when more than its own time is over."""
    kit.hours_pass(25)
    supervisor.sweep_once()
    return kit.state(key)


@pytest.fixture
def joining(sas, flow, monkeypatch):
    """A run of b beside c, then d, then e. d has a limit, and b is done."""
    limit(monkeypatch, "alpha")
    flow(*plan(parallel(B, C), D, step("e", "gamma")), complete_within=DAY)
    (key,) = kit.waiting(1, "waiting")
    finish("b")
    return key


def go_back(key, *undone):
    """Let the run go on from the step that is undone last."""
    resuming.resume_from(key, undone[-1], by="ada", reason="again")
    for name in undone:
        finish(f"undo:{name}")


def test_a_join_is_not_held_by_its_limit_when_one_branch_was_done_twice_and_another_is_not_done(joining):
    go_back(joining, "b")
    finish("b")
    assert a_day_passes(joining) == "Error"


def test_a_join_is_not_held_any_more_when_the_run_has_gone_back_behind_it(joining):
    finish("c")
    go_back(joining, "b")
    assert a_day_passes(joining) == "Error"


def test_a_join_is_held_again_from_the_last_end_of_a_branch_that_was_done_anew(joining):
    finish("c")
    go_back(joining, "b")
    finish("b")
    assert (a_day_passes(joining), kit.states(joining)) == ("Processing", ["Processed", "Processed", "Pending", "Pending"])


def test_a_join_that_is_to_be_done_anew_is_not_held_before_the_branches_are(joining):
    finish("c")
    finish("d")
    go_back(joining, "d", "b")
    assert a_day_passes(joining) == "Error"


def test_a_wait_that_begins_anew_leaves_the_sleep_before_it_alone(sas, flow):
    flow(WaitForSignal("paid", within=100 * HOUR), B, complete_within=DAY)
    run = sas.start("waiting")
    pause()
    kit.hours_pass(10)
    lift()
    resuming.resume_from(run.key, "paid", by="ada", reason="again")
    sas.run()
    assert left(run) == pytest.approx(124, abs=NEAR)


def test_in_a_list_that_goes_back_the_step_that_is_next_is_held(sas, flow, monkeypatch):
    limit(monkeypatch, "beta")
    flow(A, B, C, complete_within=DAY)
    sas.fake("c", raises=PermanentFailure("no"), times=1)
    run = sas.start("waiting")
    go_back(run.key, "b")
    assert (a_day_passes(run.key), run.steps["b"]) == ("Processing", "Pending")
