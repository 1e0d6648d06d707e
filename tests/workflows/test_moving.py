"""Runs under way that move to a newer version of their workflow: what is kept, what is planned again, what is refused."""

from __future__ import annotations

import json
from contextlib import contextmanager
from datetime import timedelta

import pytest

from supervision import ChildRun, PermanentFailure, Step, Timer, TransientFailure, WaitForSignal, Workflow, parallel, plan, testing
from supervision.agent import CHILD, WAIT, ChildAgent, WaitAgent, registered
from supervision.errors import ChangedMeanwhile, Refused
from supervision.insight import directory
from supervision.models import Alert, Run, StepEvent, StepState
from supervision.operations import completing, moving, pauses
from supervision.plans import registry
from supervision.signals.sending import send_signal
from supervision.workflow import Intake, NewRun, _newest, _workflows
from tests.engine import kit
from tests.support import toy

HOUR = timedelta(hours=1)
A, B, C, D = (Step(name, agent=agent, retry=toy.RETRY) for name, agent in zip("abcd", ("alpha", "beta", "gamma", "alpha"), strict=True))
X = Step("x", agent="gamma", retry=toy.RETRY)
PAID = WaitForSignal("paid", within=HOUR)


@pytest.fixture
def version(transactional_db, sas, monkeypatch):
    """Registers versions of the workflow of the test, the newest last."""
    toy.reset()
    monkeypatch.setattr(directory, "_used", [directory.Directory()])
    monkeypatch.setitem(registered, WAIT, WaitAgent())
    monkeypatch.setitem(registered, CHILD, ChildAgent())

    def register(number, *steps, name="moved", **fields):
        workflow = Workflow(name, steps, version=number, **fields)
        monkeypatch.setitem(_workflows, (name, number), workflow)
        monkeypatch.setitem(_newest, name, workflow)
        registry.confirm(again=True)
        return workflow

    return register


class InSession(Intake):
    """Runs of the session that the payload names."""

    def read(self, body):
        payload = json.loads(body)
        return NewRun(payload=payload, session_key=payload["session_key"])


@contextmanager
def paused():
    """The workflow is paused meanwhile, so that a step that ends hands on to no other."""
    pauses.pause("workflow", "moved", by="test", reason="to move its orders")
    yield
    pauses.lift("workflow", "moved", by="test")


def move(run, **options):
    return moving.move(run.key, by="olga", reason="new law", **options)


def refused(run, **options):
    with pytest.raises(Refused) as problem:
        move(run, **options)
    assert problem.value.code == "not_movable"
    return str(problem.value)


def rows(run):
    return list(StepState.objects.filter(run__key=run.key, direction="do").order_by("position").values_list("name", "process_state"))


# ------------------------------------------------------------------------------------------------------------ lists


def test_a_waiting_run_goes_on_with_the_steps_of_the_newer_version(sas, version):
    version(1, A, PAID, B, C)
    run = sas.start("moved")
    version(2, A, PAID, X, Step("c", agent="gamma", reads=("a", "x")))
    before = Run.objects.get(key=run.key)
    deadline = kit.step(run.key, "paid").awaits_until

    assert move(run) == "Processing"

    assert rows(run) == [("a", "Processed"), ("paid", "Pending"), ("x", "Pending"), ("c", "Pending")]
    after = Run.objects.get(key=run.key)
    assert (after.version, after.complete_by) == (2, before.complete_by)
    assert kit.step(run.key, "paid").awaits_until == deadline
    [event] = StepEvent.objects.filter(run=after, why__contains="version")
    assert (event.actor, event.why, event.to_state) == ("olga", "moved from version 1 to version 2: new law", "Processing")
    sas.assert_healthy()
    run.signal("paid", {"amount": 3})
    sas.run()
    run.assert_state("Processed")
    assert sas.performed == ["a", "paid", "paid", "x", "c"]
    assert set(toy.GAMMA.performed[-1].results) == {"a", "x"}
    sas.assert_healthy()


def test_a_signal_that_came_early_is_taken_by_a_wait_that_the_new_version_adds(sas, version):
    version(1, A, PAID, WaitForSignal("seen", signal="sent", within=HOUR))
    run = sas.start("moved")
    run.signal("sent", {"by": "rail"}, key="1")
    version(2, A, PAID, B, WaitForSignal("sent", within=HOUR))
    move(run)
    run.signal("paid", key="1")
    sas.run()
    run.assert_state("Processed")
    assert run.results["sent"] == {"came": True, "payload": {"by": "rail"}}


def test_a_failed_step_is_kept_with_its_alert_and_resubmitted_under_the_new_version(sas, version):
    version(1, A, B, C)
    sas.fake("b", raises=PermanentFailure("no"), times=1)
    run = sas.start("moved")
    version(2, A, B, X)
    assert move(run) == "Error"
    assert run.alerts == ["error"]
    sas.assert_healthy()
    run.resubmit()
    sas.run()
    run.assert_state("Processed")
    assert rows(run) == [("a", "Processed"), ("b", "Processed"), ("x", "Processed")]
    sas.assert_healthy()


def test_a_step_that_waits_for_its_next_attempt_keeps_its_key_and_count(sas, version):
    version(1, A, B)
    sas.fake("a", raises=TransientFailure("busy"), times=1)
    run = sas.start("moved")
    sas.others_succeed("a")
    version(2, A, X, B)
    old = kit.step(run.key, "a")
    assert move(run) == "Processing"
    new = kit.step(run.key, "a")
    assert (new.idempotency_key, new.attempt, new.failure_count, new.not_before) == (
        old.idempotency_key,
        1,
        old.failure_count,
        old.not_before,
    )
    testing.make_due()
    sas.run()
    run.assert_state("Processed")
    assert sas.performed == ["a", "a", "x", "b"]
    sas.assert_healthy()


def test_a_run_that_has_begun_nothing_takes_the_whole_new_plan(sas, version):
    version(1, A, B)
    [key] = kit.waiting(1, "moved")
    due = kit.step(key, "a").turn_at
    version(2, X, C, A)
    assert moving.move(key, by="olga", reason="r") == "Pending"
    assert (kit.states(key), kit.step(key, "x").turn_at) == (["Pending"] * 3, due)
    sas.run()
    assert sas.performed == ["x", "c", "a"]
    sas.assert_healthy()


def test_a_run_that_waits_for_its_session_is_released_after_it_was_moved(sas, version):
    version(1, A, PAID, intake=InSession())
    first, second = (sas.submit("moved", {"session_key": "s"}, session_key="s") for _ in range(2))
    sas.run()
    version(2, X, A, B, intake=InSession())
    refused(first)
    assert move(second) == "Pending"
    first.signal("paid")
    sas.run()
    assert (first.state, second.state) == ("Processed", "Processed")
    assert rows(second) == [("x", "Processed"), ("a", "Processed"), ("b", "Processed")]
    sas.assert_healthy()


def test_a_run_of_which_nothing_is_left_to_do_ends(sas, version):
    told = []
    version(1, A, B, PAID, C)
    run = sas.start("moved")
    completing.complete(run.key, by="olga", reason="cash", result={})
    version(2, A, B, PAID, on_processed=told.extend)
    assert move(run) == "Processed"
    assert [one.key for one in told] == [run.key]
    assert rows(run) == [("a", "Processed"), ("b", "Processed"), ("paid", "Processed")]
    sas.assert_healthy()


def test_a_step_that_has_left_a_starvation_alert_behind_leaves_no_open_alert(sas, version):
    version(1, A, PAID, B)
    run = sas.start("moved")
    pk = Run.objects.get(key=run.key).pk
    Alert.objects.create(run_id=pk, position=2, direction="do", generation=1, kind="starvation", step="b", message="late")
    version(2, A, PAID, X)
    move(run)
    assert run.alerts == []


# ----------------------------------------------------------------------------------------------------------- graphs


def test_a_graph_moves_while_its_branches_wait(sas, version):
    version(1, *plan(A, parallel([PAID, B], [Timer("cool", lasts=HOUR), C]), D))
    run = sas.start("moved")
    version(
        2,
        *(A, PAID, Step("b", agent="beta", after=("paid",)), Timer("cool", lasts=HOUR, after=("a",))),
        *(
            Step("x", agent="gamma", after=("cool",)),
            Step("e", agent="beta", after=("a",)),
            Step("d", agent="alpha", after=("b", "x", "e")),
        ),
    )
    assert move(run) == "Processing"
    sas.assert_healthy()
    sas.run()
    assert sas.performed[-1] == "e"
    run.signal("paid")
    sas.run()
    assert rows(run)[-1] == ("d", "Pending")
    sas.advance("1h")
    run.assert_state("Processed")
    assert sas.performed[-2:] == ["x", "d"]
    sas.assert_healthy()


def test_a_graph_in_error_is_held_until_an_operator_settles_the_step(sas, version):
    version(1, *plan(A, parallel(B, PAID), D))
    sas.fake("b", raises=PermanentFailure("no"), times=1)
    run = sas.start("moved")
    version(2, *plan(A, parallel(B, PAID), X, D))
    assert move(run) == "Error"
    sas.assert_healthy()
    assert testing.schedule() == []
    run.resubmit()
    run.signal("paid")
    sas.run()
    run.assert_state("Processed")
    assert sas.performed[-2:] == ["x", "d"]
    sas.assert_healthy()


@pytest.mark.parametrize("to_graph", [True, False])
def test_a_list_becomes_a_graph_and_a_graph_a_list(sas, version, to_graph):
    both = [(A, PAID, B, C), plan(A, PAID, parallel(B, C), D)]
    old, new = both if to_graph else reversed(both)
    version(1, *old)
    run = sas.start("moved")
    version(2, *new)
    move(run)
    sas.assert_healthy()
    run.signal("paid")
    sas.run()
    run.assert_state("Processed")
    assert [name for name, _ in rows(run)] == [step.name for step in new]
    sas.assert_healthy()
    run = Run.objects.get(key=run.key)
    assert (run.open_steps is None) == (not to_graph)


def test_what_was_moved_is_undone_as_the_new_plan_says(sas, version):
    version(1, *plan(A, parallel(B, C), PAID))
    run = sas.start("moved")
    version(
        2,
        A,
        Step("b", agent="beta", after=("a",)),
        Step("c", agent="gamma", after=("b",)),
        WaitForSignal("paid", within=HOUR, after=("c",)),
    )
    move(run)
    run.cancel()
    sas.run()
    run.assert_state("Cancelled")
    assert sas.undone == ["c", "b", "a"]
    sas.assert_healthy()


def test_a_step_that_only_came_after_a_removed_one_becomes_due(sas, version):
    version(1, *plan(A, parallel([Timer("cool", lasts=HOUR), B], PAID), D))
    run = sas.start("moved")
    version(
        2,
        A,
        Timer("cool", lasts=HOUR, after=("a",)),
        Step("b", agent="beta", after=("a",)),
        WaitForSignal("paid", within=HOUR, after=("a",)),
        D,
    )
    move(run)
    sas.assert_healthy()
    sas.run()
    assert sas.performed[-1] == "b"


# --------------------------------------------------------------------------------------------------------- children


def test_children_that_were_started_stay_and_the_parent_goes_on_with_them(sas, version):
    version(1, PAID, name="kid")
    version(1, ChildRun("wrap", workflow="kid"), A)
    run = sas.start("moved")
    child = Run.objects.get(parent_key=run.key).key
    version(2, ChildRun("wrap", workflow="another"), X)
    assert refused(run) == "wrap has started runs of kid; in version 2 it starts others."
    version(3, ChildRun("wrap", workflow="kid"), X)
    move(run)
    sas.assert_healthy()
    send_signal(child, "paid", {})
    sas.run()
    run.assert_state("Processed")
    assert run.results["wrap"]["child"] == child
    assert rows(run) == [("wrap", "Processed"), ("x", "Processed")]
    sas.assert_healthy()


# -------------------------------------------------------------------------------------------------------- previews


def test_the_plan_says_what_is_kept_added_and_removed_and_counts_only_while_the_run_stands_as_it_was(sas, version):
    version(1, A, PAID, B, C)
    run = sas.start("moved")
    version(2, A, PAID, X, C)
    found = moving.plan(run.key)
    assert [(step.name, step.action) for step in found.steps] == [
        ("a", "keep"),
        ("paid", "keep"),
        ("x", "add"),
        ("c", "run"),
        ("b", "remove"),
    ]
    assert found.refusals == []
    with pytest.raises(ChangedMeanwhile):
        move(run, plan_version="another")
    version(3, A, PAID, C)
    with pytest.raises(ChangedMeanwhile):
        move(run, plan_version=found.version)
    assert move(run, version=2, plan_version=found.version) == "Processing"


# ------------------------------------------------------------------------------------------------------------- bulk


def test_all_runs_of_a_version_move_and_each_that_cannot_says_why(sas, version, monkeypatch):
    monkeypatch.setattr(moving, "BATCH", 3)
    version(1, A, PAID, B)
    waiting = [sas.start("moved", {"n": n}) for n in range(5)]
    done = sas.start("moved")
    done.signal("paid")
    sas.run()
    sas.fake("b", raises=PermanentFailure("no"))
    failed = sas.start("moved")
    failed.signal("paid")
    sas.run()
    version(2, A, PAID, X)
    dry = list(moving.move_many(moving.runs_of("moved", 1), by="olga", reason="r", dry_run=True))
    found = list(moving.move_many(moving.runs_of("moved", 1), by="olga", reason="r"))
    assert dry == found
    assert {one.key: one.state for one in found if not one.code} == {run.key: "Processing" for run in waiting}
    assert [(one.key, one.code) for one in found if one.code] == [(failed.key, "not_movable")]
    assert "b has begun" in found[-1].message
    assert Run.objects.filter(version=2).count() == 5
    assert [one.code for one in moving.move_many(["nothing"], by="olga", reason="r")] == ["unknown_run"]
    sas.assert_healthy()


def test_a_run_that_waits_for_its_turn_in_its_session_is_healthy(sas, version):
    version(1, A, PAID, intake=InSession())
    first, second = (sas.submit("moved", {"session_key": "s"}, session_key="s") for _ in range(2))
    sas.run()
    assert (first.state, second.state) == ("Processing", "Pending")
    sas.assert_healthy()
