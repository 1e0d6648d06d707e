"""Runs that go on from an earlier step: what is undone, what is done anew, what is refused, and what operators do meanwhile."""

from __future__ import annotations

import pytest

from supervision import Agent, ChildRun, PermanentFailure, Step, Timer, TransientFailure, parallel, plan, testing
from supervision.agent import registered
from supervision.errors import ChangedMeanwhile, Refused
from supervision.models import Effect, Run, Signal, StepEvent, StepState
from supervision.operations import completing, operator_verbs, previews, resuming
from supervision.signals.sending import send_signal
from tests.engine import kit
from tests.support import toy
from tests.workflows.test_moving import HOUR, PAID, A, B, C, D, rows, version

__all__ = ["version"]


class Letters(Agent):
    """What it sends cannot be taken back."""

    name, undoable = "letters", False

    def perform(self, request):
        return {}


def back(run, step, **options):
    return resuming.resume_from(run.key, step, by="olga", reason="wrong price", **options)


def refused(run, step):
    with pytest.raises(Refused) as problem:
        back(run, step)
    assert problem.value.code == "not_resumable"
    assert str(problem.value) == " ".join(resuming.plan(run.key, step).refusals)
    return str(problem.value)


def keys(run, direction="do"):
    return [
        row.idempotency_key.removeprefix(f"{run.key}:")
        for row in StepState.objects.filter(run__key=run.key, direction=direction).order_by("position")
    ]


@pytest.fixture
def failed(sas, version):
    """A run whose third step has failed for good."""
    version(1, A, B, C, D)
    sas.fake("c", raises=PermanentFailure("no"), times=1)
    return sas.start("moved")


# ------------------------------------------------------------------------------------------------------------ lists


def test_what_came_later_is_undone_backwards_and_then_done_anew_under_new_keys(sas, failed):
    assert back(failed, "a") == "Compensating"
    sas.assert_healthy()
    sas.run()
    failed.assert_state("Processed")
    assert sas.undone == ["b", "a"]
    assert sas.performed == ["a", "b", "c", "a", "b", "c", "d"]
    assert keys(failed) == ["a:do:2", "b:do:2", "c:do:2", "d:do:1"]
    assert not StepState.objects.filter(direction="undo").exists()
    assert failed.alerts == []
    assert (Run.objects.get(key=failed.key).resume_from, toy.ALPHA.performed[1].results) == (None, {})
    sas.assert_healthy()


def test_only_the_steps_from_the_named_one_on_are_undone(sas, failed):
    back(failed, "b")
    sas.run()
    failed.assert_state("Processed")
    assert (sas.undone, keys(failed)) == (["b"], ["a:do:1", "b:do:2", "c:do:2", "d:do:1"])
    [event] = StepEvent.objects.filter(run__key=failed.key, position__isnull=True, to_state="Compensating")
    assert (event.actor, event.why) == ("olga", "goes on from b: wrong price")


def test_a_failed_step_alone_begins_again_without_an_undo(sas, failed):
    assert back(failed, "c") == "Processing"
    sas.assert_healthy()
    sas.run()
    failed.assert_state("Processed")
    assert (sas.undone, keys(failed)) == ([], ["a:do:1", "b:do:1", "c:do:2", "d:do:1"])


def test_a_run_that_goes_back_twice_undoes_each_time_under_another_key(sas, failed):
    sas.fake("d", raises=PermanentFailure("no"), times=2)
    back(failed, "a")
    sas.run()
    assert back(failed, "a") == "Compensating"
    sas.assert_healthy()
    assert keys(failed, "undo") == ["a:undo:2", "b:undo:2", "c:undo:1"]
    sas.run()
    assert keys(failed) == ["a:do:3", "b:do:3", "c:do:3", "d:do:2"]
    failed.assert_state("Error")
    failed.compensate()
    assert keys(failed, "undo") == ["a:undo:3", "b:undo:3", "c:undo:3"]
    sas.run()
    failed.assert_state("Cancelled")
    sas.assert_healthy()
    called = [request.idempotency_key for agent in (toy.ALPHA, toy.BETA, toy.GAMMA) for request in agent.undone]
    assert len(called) == len(set(called)) == 8


def test_a_waiting_run_goes_back_and_waits_anew_for_another_signal(sas, version):
    version(1, A, PAID, B, Timer("cool", lasts=HOUR), C)
    run = sas.start("moved")
    run.signal("paid", {"n": 1}, key="1")
    sas.run()
    assert run.results["paid"]["payload"] == {"n": 1}
    before = Run.objects.get(key=run.key)
    back(run, "a")
    run.signal("paid", {"n": 2}, key="2")
    sas.run()
    assert run.results["paid"]["payload"] == {"n": 2}
    assert rows(run)[3] == ("cool", "Pending")
    assert abs(Run.objects.get(key=run.key).complete_by - before.complete_by) < HOUR / 10
    sas.assert_healthy()
    sas.advance("1h")
    run.assert_state("Processed")
    assert Signal.objects.filter(taken_by__isnull=True).count() == 0
    sas.assert_healthy()


def test_a_condition_is_asked_again(sas, version):
    version(
        1,
        Step("a", agent="alpha", retry=toy.RETRY),
        Step("b", agent="beta", when=lambda facts: facts.results["a"].get("n") == 2, reads=("a",)),
        C,
    )
    sas.fake("a", returns={"n": 2}, times=1)
    sas.fake("a", returns={"n": 1}, times=1)
    sas.fake("c", raises=PermanentFailure("no"), times=1)
    run = sas.start("moved")
    assert rows(run)[1] == ("b", "Skipped")
    back(run, "a")
    sas.run()
    assert rows(run) == [("a", "Processed"), ("b", "Processed"), ("c", "Processed")]
    sas.assert_healthy()


def test_a_child_is_undone_and_another_one_is_started(sas, version):
    version(1, B, name="kid")
    version(1, A, ChildRun("wrap", workflow="kid"), C)
    sas.fake("c", raises=PermanentFailure("no"), times=1)
    run = sas.start("moved")
    back(run, "wrap")
    sas.run()
    run.assert_state("Processed")
    first, second = Run.objects.filter(parent_key=run.key).order_by("pk")
    assert (first.process_state, second.process_state, second.key) == ("Cancelled", "Processed", f"{run.key}:wrap:2:child")
    assert run.results["wrap"]["child"] == second.key
    sas.assert_healthy()


# ----------------------------------------------------------------------------------------------------------- graphs


def test_in_a_graph_other_branches_stay_as_they_are_and_are_held_meanwhile(sas, version):
    version(1, *plan(A, parallel([B, PAID], [C, Timer("cool", lasts=HOUR)]), D))
    run = sas.start("moved")
    assert back(run, "b") == "Compensating"
    sas.assert_healthy()
    sas.run()
    assert (sas.undone, sas.performed.count("c"), sas.performed.count("b")) == (["b"], 1, 2)
    assert rows(run)[2] == ("paid", "Pending")
    sas.assert_healthy()
    run.signal("paid")
    sas.advance("1h")
    run.assert_state("Processed")
    assert sas.performed.count("d") == 1
    sas.assert_healthy()


def test_a_branch_that_would_try_again_waits_until_the_run_has_gone_back(sas, version):
    version(1, *plan(A, parallel([B, PAID], C), D))
    sas.fake("c", raises=TransientFailure("busy"), times=1)
    run = sas.start("moved")
    sas.others_succeed("c")
    back(run, "b")
    testing.make_due()
    assert [place.label for place, _ in testing.schedule()] == ["undo:b"]
    run.signal("paid")
    sas.advance("1h")
    run.assert_state("Processed")
    assert (sas.undone, sas.performed.count("c")) == (["b"], 2)
    sas.assert_healthy()


def test_the_undo_of_branches_runs_backwards_in_each(sas, version):
    version(1, *plan(A, parallel(B, C), D))
    sas.fake("d", raises=PermanentFailure("no"), times=1)
    run = sas.start("moved")
    back(run, "a")
    sas.run()
    run.assert_state("Processed")
    assert (sorted(sas.undone[:2]), sas.undone[2]) == (["b", "c"], "a")
    assert sas.performed.count("a") == sas.performed.count("c") == 2
    sas.fake("d", raises=PermanentFailure("no"))
    sas.assert_healthy()


@pytest.mark.parametrize("step", ["a", "b"])
def test_after_a_graph_has_gone_back_all_of_it_is_undone(sas, version, step):
    version(1, *plan(A, parallel(B, C), D))
    sas.fake("d", raises=PermanentFailure("no"))
    run = sas.start("moved")
    back(run, step)
    sas.run()
    assert run.state == "Error"
    run.compensate()
    sas.assert_healthy()
    sas.run()
    run.assert_state("Cancelled")
    assert sas.undone[-1] == "a"
    sas.assert_healthy()


# --------------------------------------------------------------------------------------------------------- refusals


def test_what_cannot_be_undone_is_refused_and_named(sas, version, monkeypatch):
    monkeypatch.setitem(registered, "letters", Letters())
    version(1, A, Step("letter", agent="letters", retry=toy.RETRY), C)
    sas.fake("c", raises=PermanentFailure("no"))
    run = sas.start("moved")
    assert refused(run, "a") == "letter is done and cannot be undone: the agent letters has no undo."
    assert back(run, "c") == "Processing"


def test_an_unknown_effect_is_refused_by_the_step_and_by_the_ledger(sas, failed):
    step = kit.step(failed.key, "b")
    StepState.objects.filter(run_id=step.run_id, position=2).update(effect="unknown")
    words = "What c did is not known: resubmit it, or record by hand what was done, or undo the order."
    assert refused(failed, "a") == refused(failed, "c") == words
    StepState.objects.filter(run_id=step.run_id, position=2).update(effect="none")
    Effect.objects.create(run_id=step.run_id, position=1, direction="do", key="k", operation="charge", outcome="intended", generation=1,
                          attempt=1, service="bank", actor="test")  # fmt: skip
    assert refused(failed, "a") == words.replace(" c ", " b ")
    assert back(failed, "c") == "Processing"


def test_a_running_step_one_that_has_not_begun_and_one_in_another_branch_are_refused(sas, version):
    version(1, *plan(parallel([A, B], C), D))
    sas.fake("a", raises=PermanentFailure("no"), times=1)
    run = sas.start("moved")
    assert refused(run, "c") == "a is in Error and does not come after c: resubmit or skip it first."
    assert "b has not begun." in refused(run, "b")
    assert back(run, "a") == "Processing"
    kit.start_all()
    assert "a is in Processing until" in refused(run, "c")
    with pytest.raises(Refused, match="The order has no step x; its steps: a, b, c, d") as problem:
        back(run, "x")
    assert problem.value.code == "unknown_step"


def test_a_run_that_has_ended_or_is_undone_is_refused(sas, failed):
    sas.fake("undo:b", raises=PermanentFailure("no"))
    failed.compensate()
    assert refused(failed, "a") == "The order is being undone."
    sas.run()
    assert refused(failed, "a") == "The order is being undone."
    completing.complete(failed.key, by="olga", reason="r", result={})
    sas.run()
    assert refused(failed, "a") == "The order is Cancelled: it has ended."
    with pytest.raises(Refused, match="A reason is required"):
        resuming.resume_from(failed.key, "a", by="olga", reason="")


def test_the_plan_says_what_is_undone_and_done_anew_and_counts_while_the_run_stands(sas, failed):
    found = resuming.plan(failed.key, "b")
    assert [(step.name, step.direction, step.action) for step in found.steps] == [
        ("b", "undo", "run"), ("a", "do", "keep"), ("b", "do", "run"), ("c", "do", "run"), ("d", "do", "run"),
    ]  # fmt: skip
    assert [step.idempotency_key.split(":", 1)[1] for step in found.steps] == ["b:undo:1", "a:do:1", "b:do:2", "c:do:2", "d:do:1"]
    with pytest.raises(ChangedMeanwhile):
        back(failed, "b", plan_version="another")
    assert back(failed, "b", plan_version=found.version) == "Compensating"


# ------------------------------------------------------------------------------------------------ while it is undone


@pytest.fixture
def stuck(sas, failed):
    """A run that goes back to its first step, and an undo that fails on the way."""
    sas.fake("undo:b", raises=PermanentFailure("locked"), times=1)
    back(failed, "a")
    sas.run()
    failed.assert_state("Error")
    sas.assert_healthy()
    return failed


def test_an_undo_that_fails_stops_the_run_with_an_alert_and_a_resubmission_goes_on(sas, stuck):
    assert stuck.alerts == ["error"]
    stuck.resubmit()
    sas.run()
    stuck.assert_state("Processed")
    assert sas.performed[-4:] == ["a", "b", "c", "d"]
    sas.assert_healthy()


def test_an_undo_done_by_hand_counts_and_the_run_goes_on(sas, stuck):
    completing.complete(stuck.key, by="olga", reason="by phone", result={})
    sas.run()
    stuck.assert_state("Processed")
    assert sas.undone == ["b", "a"]
    sas.assert_healthy()


def test_a_failed_undo_is_not_skipped_because_its_step_would_be_done_twice(sas, stuck):
    with pytest.raises(Refused, match="b has to be undone") as problem:
        stuck.skip()
    assert problem.value.code == "not_skippable"
    stuck.cancel()
    stuck.skip()
    sas.run()
    stuck.assert_state("Cancelled")
    assert sas.undone == ["b", "a"]


@pytest.mark.parametrize("verb", [operator_verbs.cancel, operator_verbs.compensate])
@pytest.mark.parametrize("graph", [False, True])
def test_a_run_that_goes_back_and_is_cancelled_undoes_the_rest_too(sas, version, verb, graph):
    version(1, *(plan(A, parallel(B, PAID), C) if graph else (A, B, C, D)))
    sas.fake("b" if graph else "c", raises=PermanentFailure("no"), times=1)
    run = sas.start("moved")
    if graph:
        run.resubmit()
        sas.run()
    back(run, "b")
    assert verb(run.key, by="customer", reason="changed her mind") == "Compensating"
    sas.assert_healthy()
    sas.run()
    run.assert_state("Cancelled")
    assert sas.undone == ["b", "a"]
    assert sas.performed.count("b") == (2 if graph else 1)
    sas.assert_healthy()


def test_a_signal_that_comes_while_the_run_goes_back_is_kept(sas, version):
    version(1, A, PAID, B)
    run = sas.start("moved")
    back(run, "a")
    assert Run.objects.get(key=run.key).process_state == "Compensating"
    assert send_signal(run.key, "paid", {"n": 1}) == "accepted"
    sas.run()
    run.assert_state("Processed")
    assert sas.performed.count("a") == 2


def test_a_late_answer_of_an_undone_attempt_meets_no_new_attempt(sas, failed):
    back(failed, "c")
    place, claims = testing.schedule()[0]
    zombie = claims[0]._replace(attempt=1)
    assert claims[0].attempt == 2
    assert kit.step_verbs.start(place, [zombie]) == []
    sas.advance("5m")
    failed.assert_state("Processed")


def test_a_run_whose_time_was_over_gets_its_whole_time_again(sas, failed):
    kit.fetch("UPDATE supervision_run SET complete_by = now() - interval '1 hour'")
    back(failed, "a")
    sas.run()
    failed.assert_state("Processed")
    assert testing.run_of(failed.key).complete_by > kit.fetch("SELECT now() + interval '1 hour'")[0][0]


def test_a_run_that_is_older_than_the_databases_epoch_goes_on_looking_for_effects(sas, failed):
    kit.fetch("UPDATE supervision_stepstate SET attempt = attempt + 10000 WHERE position = 2")
    back(failed, "a")
    assert {row.attempt for row in StepState.objects.filter(direction="undo")} == {10_000}
    sas.run()
    failed.assert_state("Processed")
    assert [kit.step(failed.key, name).attempt for name in "abcd"] == [10_002, 10_002, 10_002, 1]
    sas.assert_healthy()


def test_the_plan_of_a_cancellation_names_the_undos_that_it_adds_and_their_keys(sas, failed):
    back(failed, "b")
    found = previews.plan(failed.key, "cancel")
    assert [step.name for step in found.steps if (step.direction, step.action) == ("undo", "run")] == ["b", "a"]

    sas.fake("d", raises=PermanentFailure("no"), times=1)
    sas.run()
    planned = {step.idempotency_key for step in previews.plan(failed.key, "compensate").steps if step.direction == "undo"}
    failed.compensate()
    written = StepState.objects.filter(run__key=failed.key, direction="undo")
    assert planned == set(written.values_list("idempotency_key", flat=True))
    assert f"{failed.key}:b:undo:2" in planned
