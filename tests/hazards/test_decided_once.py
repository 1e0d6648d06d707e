"""Hazards 10 and 11: a condition whose answer would differ later; a version that moves while a branch is in Processing."""

from __future__ import annotations

import pytest

from supervision import Step, TransientFailure, parallel, plan, testing
from supervision.models import Run, StepState, StrayReply
from supervision.operations import moving
from supervision.store import step_verbs
from tests.engine import kit
from tests.support import toy
from tests.workflows.conftest import ALPHA, flow, paid
from tests.workflows.test_children import GAMMA
from tests.workflows.test_moving import A, B, C, D, X, move, refused, rows, version

__all__ = ["flow", "version"]


@pytest.mark.parametrize("first", [True, False])
def test_a_condition_that_would_be_answered_otherwise_later_is_not_asked_again(sas, flow, first):
    """The first answer counts, also at the second attempt: after a kill, a resubmission or a sweep."""
    answers = iter([first])
    beta = Step("beta-step", agent="beta", when=lambda _facts: next(answers), retry=toy.RETRY)
    flow(ALPHA, beta, GAMMA)
    sas.fake("beta-step", raises=TransientFailure("503"), times=2)
    sas.kill("beta-step", "agent.after_start")
    run = sas.start("waiting")
    for _ in range(4):  # a third call of `next` would raise, and stop the run
        sas.advance("5m")

    run.assert_state("Processed")
    assert run.steps["beta-step"] == ("Processed" if first else "Skipped")
    sas.assert_healthy()


def test_a_run_that_goes_back_asks_its_condition_anew_because_the_step_is_done_anew(sas, flow):
    """The one case in which it is asked again: an operator lets the run begin again from a step before it."""
    asked = []
    beta = Step("beta-step", agent="beta", when=lambda facts: asked.append(dict(facts.payload)) or facts.payload["wanted"], retry=toy.RETRY)
    flow(ALPHA, beta, paid())
    run = sas.start("waiting", {"wanted": False})
    assert run.steps["beta-step"] == "Skipped"
    StepState.objects.filter(run__key=run.key, name="paid").exists()
    Run.objects.filter(key=run.key).update(payload={"wanted": True})

    run.signal("paid")
    sas.run()
    run.assert_state("Processed")
    assert run.steps["beta-step"] == "Skipped"  # the later payload changes nothing
    assert asked == [{"wanted": False}]
    sas.assert_healthy()


def test_a_version_does_not_move_while_a_branch_is_in_processing_and_moves_once_it_rests(sas, version):
    """One branch waits, the other one works: refused with its name and deadline. When it has ended, the run moves."""
    steps = plan(A, parallel(B, C), D)
    version(1, *steps)
    run = sas.submit("moved")
    [(place, claims)] = testing.schedule()
    testing.perform(place, claims)
    sent = testing.schedule()
    working = [step.name for step in StepState.objects.filter(run__key=run.key, process_state="Processing")]
    assert working
    version(2, *plan(A, parallel(B, C), D, X))
    before = rows(run)

    assert f"{working[0]} is in Processing until" in refused(run)
    [one] = moving.move_many([run.key], by="olga", reason="new law")
    assert (one.state, one.code) == ("", "not_movable")
    assert rows(run) == before
    assert Run.objects.get(key=run.key).version == 1

    kit.go(sent)
    testing.run_until_idle()
    assert Run.objects.get(key=run.key).process_state == "Processed"
    assert Run.objects.get(key=run.key).version == 1
    sas.assert_healthy()


def test_the_late_answer_of_a_branch_meets_the_plan_that_was_kept(sas, version):
    """A branch's call expires, the run moves, and the late answer comes: it changes nothing in the new plan, and is kept."""
    version(1, *plan(A, parallel(B, C), D))
    run = sas.submit("moved")
    [(place, claims)] = testing.schedule()
    testing.perform(place, claims)
    working = [(place, step_verbs.start(place, claims)) for place, claims in testing.schedule()]
    testing.expire(run.key)
    sas.sweep()
    assert not StepState.objects.filter(run__key=run.key, process_state="Processing").exists()
    version(2, *plan(A, parallel(B, C), X, D))
    assert move(run) == "Processing"
    before = rows(run)

    for place, items in working:
        kit.finish(place, items, {"late": True})
    assert rows(run) == before
    assert StrayReply.objects.filter(run__key=run.key).count() == sum(len(items) for _place, items in working) > 0
    testing.make_due()
    sas.run()

    run.assert_state("Processed")
    assert [name for name, state in rows(run) if state == "Processed"] == ["a", "b", "c", "x", "d"]
    assert sorted(sas.performed) == ["a", "b", "c", "d", "x"]
    sas.assert_healthy()
