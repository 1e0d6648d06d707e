"""An order that an operator cancels without undo: what services did stays, what our database holds is given back, once."""

from __future__ import annotations

from functools import partial

import pytest

from supervision import PermanentFailure, Step, parallel, plan
from supervision.agent import Agent, registered
from supervision.errors import ChangedMeanwhile, Refused
from supervision.models import Alert, Child, Run, Signal, StepEvent, StepState, StrayReply
from supervision.operations import operator_verbs, previews
from supervision.operations.ending import abandoning
from supervision.runtime import failpoints
from supervision.store import step_verbs
from tests.engine import kit
from tests.support import toy
from tests.workflows.conftest import ALPHA, BETA, asleep, paid
from tests.workflows.test_branches import A, B, C, D, begin
from tests.workflows.test_children import GAMMA, PACK, child_of, family

__all__ = ["family"]
LEFT = {"left": True}


def abandon(key, **options):
    return abandoning.abandon(key, by="olga", reason="the carrier is bankrupt", **options)


def refused(verb):
    try:
        verb()
    except (Refused, ChangedMeanwhile):
        return "refused"
    return "done"


def undos(key):
    rows = StepState.objects.filter(run__key=key, direction="undo").order_by("position")
    return {row.name: (row.process_state, row.result) for row in rows}


class Ledger(Agent):
    """An agent whose only resource is this database."""

    name, transactional = "ledger", True

    def perform_many(self, requests):
        return [{} for _ in requests]

    def compensate_many(self, requests):
        return [{"given": "back"} for _ in requests]


@pytest.fixture
def failed(transactional_db, sas, flow):
    """A run whose last step has failed for good."""
    flow(ALPHA, BETA, GAMMA)
    sas.fake("gamma-step", raises=PermanentFailure("no"))
    return sas.start("waiting")


def test_a_run_in_error_ends_cancelled_and_what_was_done_stays(sas, failed):
    assert abandon(failed.key) == "Cancelled"

    sas.run()
    assert sas.undone == []
    assert undos(failed.key) == {"alpha-step": ("Skipped", LEFT), "beta-step": ("Skipped", LEFT)}
    run = Run.objects.get(key=failed.key)
    assert (run.process_state, run.finished_at is not None, run.cancel_requested_at is not None) == ("Cancelled", True, True)
    assert not Alert.objects.filter(run=run, closed_at=None).exists()
    whys = set(StepEvent.objects.filter(run=run, actor="olga").values_list("why", flat=True))
    assert whys == {"cancelled without undo: the carrier is bankrupt"}
    sas.assert_healthy()
    kit.healthy()


def test_a_run_whose_undo_is_stuck_ends_and_later_undos_do_not_begin(sas, flow):
    flow(ALPHA, BETA, GAMMA)
    sas.fake("gamma-step", raises=PermanentFailure("no"))
    run = sas.start("waiting")
    sas.fake("undo:beta-step", raises=PermanentFailure("never"))
    run.compensate()
    sas.run()
    run.assert_state("Error")

    assert abandon(run.key) == "Cancelled"

    sas.run()
    assert sas.undone == ["beta-step"]  # it was tried, and has failed
    assert undos(run.key) == {"alpha-step": ("Skipped", LEFT), "beta-step": ("Skipped", LEFT)}
    assert not Alert.objects.filter(run__key=run.key, closed_at=None).exists()
    sas.assert_healthy()


def test_a_run_that_waits_ends_and_its_signal_comes_too_late(sas, flow):
    flow(ALPHA, paid())
    run = sas.start("waiting")
    assert asleep() == 1

    assert abandon(run.key) == "Cancelled"

    assert asleep() == 0
    with pytest.raises(Refused):
        run.signal("paid")
    assert not Signal.objects.filter(run_key=run.key).exists()
    sas.assert_healthy()


def test_a_run_that_goes_back_to_a_step_ends(sas, failed):
    sas.fake("undo:alpha-step", raises=PermanentFailure("never"))
    failed.resume_from("alpha-step")
    sas.run()
    failed.assert_state("Error")

    assert abandon(failed.key) == "Cancelled"

    assert Run.objects.get(key=failed.key).resume_from is None
    sas.assert_healthy()


def test_in_branches_every_undo_is_left_out(sas, flow):
    flow(*plan(A, parallel(B, C), D))
    key, (place, items), _rest = begin()
    kit.finish(place, items)

    assert abandon(key) == "Compensating"

    kit.expire_and_sweep(key)
    sas.run()
    assert kit.state(key) == "Cancelled"
    assert undos(key) == dict.fromkeys("abc", ("Skipped", LEFT))
    assert sas.undone == []
    sas.assert_healthy()


@pytest.mark.parametrize("answers", [True, False])
def test_a_running_step_comes_to_rest_first_and_is_not_undone(answers, sas, flow):
    flow(ALPHA, BETA, GAMMA)
    key, place, items = kit.at_step(1, "waiting")

    assert abandon(key) == "Compensating"

    if answers:
        step_verbs.finish_at(place)([(items[0], {"id": "b"})])
    else:
        kit.expire_and_sweep(key)
    assert kit.idle_state(key) == "Cancelled"
    [state] = StepState.objects.filter(run__key=key, direction="do", position=1).values_list("process_state", flat=True)
    assert state == ("Processed" if answers else "Cancelled")
    assert toy.BETA.undone == [] == toy.ALPHA.undone
    assert kit.healthy()


def test_an_answer_that_comes_after_the_end_is_kept(sas, flow):
    flow(ALPHA, BETA, GAMMA)
    key, place, items = kit.at_step(1, "waiting")
    abandon(key)
    kit.expire_and_sweep(key)
    assert kit.idle_state(key) == "Cancelled"

    step_verbs.finish_at(place)([(items[0], {"id": "late"})])

    assert StrayReply.objects.filter(run__key=key).count() == 1
    assert kit.idle_state(key) == "Cancelled"


def test_a_running_undo_is_waited_for(sas, flow):
    flow(ALPHA, BETA, GAMMA)
    key = kit.undoing(2, "waiting")
    kit.start_all()

    with pytest.raises(Refused, match="is being undone at this moment"):
        abandon(key)
    assert "is being undone at this moment" in previews.plan(key, "abandon").refusals[0]


def test_what_our_own_database_holds_is_given_back_unless_its_agent_says_no(sas, flow, monkeypatch):
    monkeypatch.setitem(registered, "ledger", Ledger())
    flow(Step("alpha-step", agent="ledger"), GAMMA)
    sas.fake("gamma-step", raises=PermanentFailure("no"))
    run = sas.start("waiting")

    plan_of = previews.plan(run.key, "abandon").steps
    assert [step.action for step in plan_of if step.direction == "undo"] == ["run"]
    assert abandon(run.key) == "Compensating"

    sas.run()
    run.assert_state("Cancelled")
    assert undos(run.key)["alpha-step"] == ("Processed", {"given": "back"})
    sas.assert_healthy()


def test_children_under_way_are_ended_first(sas, family):
    family(ALPHA, PACK, GAMMA, child=(BETA, paid()))
    run = sas.start("waiting")
    child = child_of(run)

    with pytest.raises(Refused, match=f"the first is {child.key}"):
        abandon(run.key)
    assert abandon(child.key) == "Cancelled"
    sas.run()
    run.assert_state("Error")

    assert abandon(run.key) == "Cancelled"

    assert sas.undone == []
    sas.assert_healthy()
    kit.healthy()


def test_children_that_are_done_stay_done(sas, family):
    family(ALPHA, PACK, GAMMA, child=(BETA,))
    sas.fake("gamma-step", raises=PermanentFailure("no"))
    run = sas.start("waiting")

    assert abandon(run.key) == "Cancelled"

    child_of(run).assert_state("Processed")
    assert Child.objects.get(parent_key=run.key).state == "Processed"
    sas.assert_healthy()
    kit.healthy()


def test_what_cannot_be_abandoned_is_refused_and_unchanged(sas, failed):
    version = previews.plan(failed.key, "abandon").version
    with pytest.raises(Refused, match="A reason is required"):
        abandoning.abandon(failed.key, by="olga", reason=" ")
    with pytest.raises(ChangedMeanwhile):
        abandon(failed.key, plan_version="another")
    assert abandon(failed.key, plan_version=version) == "Cancelled"
    with pytest.raises(Refused, match="is Cancelled and can no longer be cancelled"):
        abandon(failed.key)


@pytest.mark.parametrize("point", ["verb.before_commit", "verb.after_commit"])
def test_a_process_that_dies_does_it_wholly_or_not_at_all(sas, failed, point, monkeypatch):
    def die(name, *_):
        if name == point:
            raise failpoints.Injected(point)

    with monkeypatch.context() as dying:
        dying.setattr(failpoints, "hit", die)
        with pytest.raises(failpoints.Injected):
            abandon(failed.key)

    sas.run()
    failed.assert_state("Error" if point == "verb.before_commit" else "Cancelled")
    assert (undos(failed.key) == {}) == (point == "verb.before_commit")
    sas.assert_healthy()


def test_two_operators_at_the_same_moment_end_it_once(sas, flow):
    flow(ALPHA, BETA, GAMMA)
    key = kit.in_error(1, "waiting")
    version = previews.plan(key, "abandon").version
    verbs = [partial(abandon, key, plan_version=version)] * 2
    verbs += [partial(operator_verbs.compensate, key, by="otto", reason="r", plan_version=version)]

    answers = kit.at_once(*[lambda verb=verb: refused(verb) for verb in verbs])

    assert sorted(answers) == ["done", "refused", "refused"]
    assert kit.idle_state(key) == "Cancelled"
    assert kit.healthy()
