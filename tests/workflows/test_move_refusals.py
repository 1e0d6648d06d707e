"""What a newer version must agree with: the reasons why a run is not moved."""

from __future__ import annotations

import pytest

from supervision import PermanentFailure, Step, Timer, TransientFailure, WaitForSignal, Workflow, parallel, plan, testing
from supervision.errors import Refused, UnknownRun
from supervision.models import Run, WorkflowVersion
from supervision.operations import moving, pauses
from supervision.plans import registry
from supervision.workflow import _workflows
from tests.engine import kit
from tests.support import toy
from tests.workflows.test_moving import HOUR, PAID, A, B, C, X, move, paused, refused, rows, version

__all__ = ["version"]


@pytest.mark.parametrize(
    ("new", "why"),
    [
        ((B, PAID, C), "a has begun, and version 2 has no step of this name."),
        ((Step("a", agent="beta"), PAID), "a has begun at the agent alpha; in version 2 its agent is beta."),
        ((A, X, PAID), "x comes before paid in version 2 and is not done, and paid has begun."),
        ((A, WaitForSignal("paid", signal="money", within=HOUR)), "paid waits for paid; in version 2 it waits for money."),
        ((A, Timer("paid", lasts=HOUR)), "paid waits for paid; in version 2 it waits for a moment."),
        ((X, A, PAID), "x comes before a in version 2 and is not done, and a has begun."),
        ((A, B), "paid has begun, and version 2 has no step of this name."),
        (
            (A, Step("x", agent="gamma", after=("a",)), WaitForSignal("paid", within=HOUR, after=("a",))),
            "paid has begun as step 2; in version 2 it is step 3.",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_version_that_does_not_agree_with_what_has_begun_is_refused_and_says_why(sas, version, new, why):
    version(1, A, PAID, B)
    run = sas.start("moved")
    version(2, *new)
    before = rows(run)
    assert why in refused(run)
    assert why in " ".join(moving.plan(run.key).refusals)
    assert (rows(run), Run.objects.get(key=run.key).version) == (before, 1)


def test_a_run_of_which_a_step_is_running_is_refused_until_it_rests(sas, version):
    version(1, A, B, C)
    key, place, items = kit.started("moved")
    version(2, A, X, C)
    run = testing.run_of(key)
    said = refused(run)
    until = kit.step(key, "a").complete_by
    assert said == f"a is in Processing until {until:%Y-%m-%d %H:%M:%S} UTC: move the order when it has come to rest."
    with paused():
        kit.finish(place, items)
        assert move(run) == "Processing"
    sas.run()
    assert rows(run) == [("a", "Processed"), ("x", "Processed"), ("c", "Processed")]
    sas.assert_healthy()


def test_a_run_that_has_ended_is_undone_or_is_unknown_is_refused(sas, version):
    version(1, A)
    ended = sas.start("moved")
    version(2, A, B)
    assert refused(ended) == "The order is Processed: it stays with its version."
    undone = sas.submit("moved")
    sas.fake("b", raises=PermanentFailure("no"))
    sas.fake("undo:a", raises=PermanentFailure("no"))
    sas.run()
    undone.compensate()
    version(3, A, X)
    assert refused(undone) == "The order is being undone: it stays with its version."
    sas.run()
    assert refused(undone) == "The order is being undone: it stays with its version."
    with pytest.raises(UnknownRun):
        moving.move("nothing", by="olga", reason="r")
    with pytest.raises(Refused, match="A reason is required"):
        moving.move(undone.key, by="olga", reason=" ")


def test_only_a_newer_version_that_this_code_knows_can_follow(sas, version):
    version(1, A, PAID)
    version(3, A, PAID)
    run = sas.start("moved")
    assert refused(run, version=1) == "The order has version 3, and only a newer one can follow, not version 1."
    with pytest.raises(Refused, match="version 9 is not registered in the running code") as problem:
        move(run, version=9)
    assert problem.value.code == "unknown_version"


@pytest.mark.parametrize("confirmed", [False, True])
def test_code_with_another_definition_than_the_registered_one_moves_nothing(sas, version, monkeypatch, confirmed):
    version(1, A, PAID)
    version(2, A, PAID, X)
    run = sas.start("moved")
    version(3, A, PAID, C if confirmed else B)
    if confirmed:  # by this process, before the database was exchanged
        definition = registry.definition_of(Workflow("moved", (A, PAID, B), version=3))
        facts = {"definition": definition, "fingerprint": registry.fingerprint(definition)}
        WorkflowVersion.objects.filter(name="moved", version=3).update(**facts)
    else:
        monkeypatch.setitem(_workflows, ("moved", 3), Workflow("moved", (A, PAID, C), version=3))
    with pytest.raises(Refused, match="step 3 is c in this code") as problem:
        move(run)
    assert problem.value.code == "plan_changed"


def test_a_step_that_would_come_after_one_that_still_waits_is_refused(sas, version):
    version(1, *plan(A, parallel(PAID, B), C))
    run = sas.start("moved")
    version(2, *plan(A, PAID, B, C))
    assert refused(run) == "paid comes before b in version 2 and is not done, and b has begun."


def gone_back(sas, to):
    """A run that has gone back to this wait over b, which was tried once."""
    sas.fake("b", raises=PermanentFailure("no"), times=1)
    run = sas.start("moved")
    run.signal(to)
    sas.run()
    run.resume_from(to)
    sas.run()
    b = kit.step(run.key, "b")
    assert (b.process_state, b.attempt, b.generation) == ("Pending", 1, 2)
    return run


def test_an_undone_step_may_come_after_the_wait_to_which_its_run_has_gone_back(sas, version):
    version(1, A, PAID, B)
    run = gone_back(sas, "paid")
    version(2, A, PAID, B, X)
    move(run)
    sas.run()
    assert rows(run) == [("a", "Processed"), ("paid", "Pending"), ("b", "Pending"), ("x", "Pending")]
    run.signal("paid")
    sas.run()

    run.assert_state("Processed")
    assert [request.idempotency_key.partition(":")[2] for request in toy.BETA.performed] == ["b:do:2"]
    sas.assert_healthy()


def test_an_undone_step_that_is_tried_again_has_begun(sas, version):
    first = WaitForSignal("first", within=HOUR)
    version(1, *plan(A, first, parallel(PAID, B), C))
    run = gone_back(sas, "first")
    version(2, *plan(A, first, PAID, B, C))
    run.signal("first")
    sas.fake("b", raises=TransientFailure("not yet"), times=1)
    for _ in "first", "b":
        for place, claims in testing.schedule():
            testing.perform(place, claims)

    assert (kit.step(run.key, "b").process_state, kit.step(run.key, "b").attempt) == ("Pending", 2)
    assert refused(run) == "paid comes before b in version 2 and is not done, and b has begun."


def its_time_is_over(sas, run):
    kit.fetch("UPDATE supervision_run SET complete_by = now() - interval '1 hour' WHERE key = %s", [run.key])
    sas.sweep()
    run.assert_state("Error")


def test_a_step_that_was_done_by_hand_and_undone_keeps_its_place_and_its_new_key(sas, version):
    """No agent has tried it, so it has no attempt. Under its first key the service would take the second undo for the first."""
    version(1, A, B, C)
    pauses.pause("agent", "beta", by="test", reason="to do it by hand")
    run = sas.start("moved")
    pauses.lift("agent", "beta", by="test")
    its_time_is_over(sas, run)
    run.complete({"by": "hand"})
    its_time_is_over(sas, run)
    run.resume_from("b")
    for place, claims in testing.schedule():
        testing.perform(place, claims)
    b = kit.step(run.key, "b")
    assert (b.process_state, b.attempt, b.generation) == ("Pending", 0, 2)

    version(2, A, X, B, C)
    assert "b has begun as step 2; in version 2 it is step 3." in refused(run)
    version(3, A, B, C, X)
    move(run)
    sas.fake("x", raises=PermanentFailure("no"))
    sas.run()
    run.compensate()
    sas.run()

    run.assert_state("Cancelled")
    done, undone = ([request.idempotency_key.partition(":")[2] for request in of] for of in (toy.BETA.performed, toy.BETA.undone))
    assert (done, undone) == (["b:do:2"], ["b:undo:1", "b:undo:2"])
    sas.assert_healthy()
