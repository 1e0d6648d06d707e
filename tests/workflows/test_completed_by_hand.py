"""Steps that an operator did by hand: failed ones, waiting ones, undo steps; at every door."""

from __future__ import annotations

import json
import re
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.urls import reverse

from supervision import PermanentFailure, Step, Timer, parallel, plan
from supervision.errors import ChangedMeanwhile, Refused
from supervision.insight import directory
from supervision.ledger import effect_rows
from supervision.models import Alert, Effect, Run, StepEvent
from supervision.operations import completing, operator_verbs, previews
from supervision.testkit.run import Run as Told
from tests.engine import kit
from tests.shopping import a_client, an_account
from tests.support import toy
from tests.support.people import operator
from tests.workflows.conftest import ALPHA, HOUR, asleep, paid
from tests.workflows.test_branches import A, B, C, D, begin, fail, of

__all__ = ["operator"]
GAMMA = Step("gamma-step", agent="gamma", reads=("beta-step",))


@pytest.fixture
def failed(transactional_db, sas, flow, monkeypatch):
    """A run whose middle step has failed for good."""
    monkeypatch.setattr(directory, "_used", [directory.Directory()])
    flow(ALPHA, Step("beta-step", agent="beta"), GAMMA)
    sas.fake("beta-step", raises=PermanentFailure("no"))
    return sas.start("waiting")


def complete(run, result=None, **options):
    return completing.complete(run.key, by="olga", reason="by phone", result=result or {}, **options)


def test_a_step_done_by_hand_is_done_and_gives_its_result_and_is_undone_with_the_others(sas, failed):
    assert complete(failed, {"id": 7}) == "Processing"
    sas.fake("gamma-step", raises=PermanentFailure("no"))
    sas.run()
    assert sas.performed.count("beta-step") == 1
    assert failed.steps["beta-step"] == "Processed"
    assert Alert.objects.filter(run__key=failed.key, step="beta-step", closed_at__isnull=True).count() == 0
    [event] = StepEvent.objects.filter(run__key=failed.key, position=1, to_state="Processed")
    assert (event.actor, event.why) == ("olga", "done by hand: by phone")
    sas.assert_healthy()
    failed.compensate()
    sas.run()
    failed.assert_state("Cancelled")
    assert sas.undone == ["beta-step", "alpha-step"]
    assert toy.BETA.undone[0].performed == {"id": 7}


def test_a_later_step_reads_the_result_that_an_operator_gave(sas, failed):
    complete(failed, {"id": 7})
    sas.run()
    failed.assert_state("Processed")
    assert toy.GAMMA.performed[0].results == {"beta-step": {"id": 7}}


def test_the_last_step_done_by_hand_ends_the_run_and_tells_its_hook(sas, flow):
    told = []
    flow(ALPHA, Step("beta-step", agent="beta"), on_processed=told.extend)
    sas.fake("beta-step", raises=PermanentFailure("no"))
    run = sas.start("waiting")
    assert complete(run) == "Processed"
    assert [one.key for one in told] == [run.key]
    sas.assert_healthy()


def test_a_wait_is_ended_by_hand_and_its_time_is_given_back(sas, flow):
    flow(
        ALPHA,
        Timer("cool-off", lasts=24 * HOUR),
        paid(),
        GAMMA.__class__("gamma-step", agent="gamma", reads=("paid",)),
        complete_within=HOUR,
    )
    run = sas.start("waiting")
    complete(run)
    assert round((kit.run_of(run.key).complete_by - kit.run_of(run.key).created_at) / HOUR, 2) == 1
    sas.run()
    assert run.steps["paid"] == "Pending"
    complete(run, {"came": True, "payload": {"amount": 3}}, step="paid")
    sas.run()
    run.assert_state("Processed")
    assert toy.GAMMA.performed[0].results["paid"]["payload"] == {"amount": 3}
    sas.assert_healthy()


def test_a_failed_undo_is_completed_by_hand_and_the_undoing_goes_on(sas, failed):
    sas.fake("undo:alpha-step", raises=PermanentFailure("gone"))
    failed.compensate()
    sas.run()
    assert (failed.state, failed.steps["undo:alpha-step"]) == ("Error", "Error")
    complete(failed)
    sas.run()
    failed.assert_state("Cancelled")
    sas.assert_healthy()


def test_what_the_step_began_outside_counts_as_done_and_after_an_undo_by_hand_as_undone(sas, failed):
    run = kit.run_of(failed.key)
    facts = {
        "run": run,
        "position": 1,
        "key": "k",
        "operation": "charge",
        "generation": 1,
        "attempt": 1,
        "service": "bank",
        "actor": "test",
    }
    Effect.objects.create(direction="do", outcome="unknown", **facts)
    complete(failed)
    assert [one.outcome for one in effect_rows.of([(run.pk, 1)])[run.pk, 1]] == ["done"]
    sas.fake("gamma-step", raises=PermanentFailure("no"))
    sas.fake("undo:beta-step", raises=PermanentFailure("no"))
    sas.run()
    failed.compensate()
    sas.run()
    Effect.objects.create(direction="undo", outcome="intended", **{**facts, "operation": "refund"})
    assert complete(failed) == "Compensating"
    assert dict(Effect.objects.values_list("operation", "outcome")) == {"charge": "undone", "refund": "done"}
    sas.run()
    failed.assert_state("Cancelled")
    sas.assert_healthy()


def test_branches_are_completed_one_by_one(sas, flow):
    flow(*plan(A, parallel(B, C), D))
    key, b, c = begin()
    fail(*b)
    fail(*c)
    run = Told(key)
    with pytest.raises(Refused, match="Several steps can be completed: b, c"):
        complete(run)
    assert complete(run, step="b") == "Error"
    kit.healthy()
    assert complete(run, step="c") == "Processing"
    sas.run()
    assert (of(key)["run"], sas.performed) == ("Processed", ["d"])
    kit.healthy()


def test_of_two_waits_the_one_that_is_not_completed_goes_on(sas, flow):
    flow(*plan(parallel(Timer("cool-off", lasts=HOUR), paid()), D))
    run = sas.start("waiting")
    complete(run, step="cool-off")
    sas.run()
    assert (run.steps["paid"], asleep()) == ("Pending", 1)
    run.signal("paid")
    sas.run()
    run.assert_state("Processed")


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"result": [1]}, "invalid_result"),
        ({"result": {"x": "y" * 70_000}}, "invalid_result"),
        ({"result": {"x": "\0"}}, "invalid_result"),
        ({"step": "gamma-step"}, "not_completable"),
        ({"reason": " "}, "reason_required"),
    ],
)
def test_what_cannot_be_completed_is_refused_and_nothing_changes(sas, failed, options, code):
    with pytest.raises(Refused) as refused:
        completing.complete(failed.key, **{"by": "olga", "reason": "r", "result": {}, **options})
    assert refused.value.code == code
    failed.assert_state("Error")


def test_of_several_who_saw_the_same_attempt_one_completes_it(sas, failed):
    attempt = kit.step(failed.key, "beta-step").attempt
    seen = {"attempt": attempt, "plan_version": previews.plan(failed.key, "complete").version}
    both = kit.at_once(*[lambda: complete(failed, **seen)] * 2)
    assert sorted(type(one).__name__ for one in both) == ["ChangedMeanwhile", "str"]
    with pytest.raises(ChangedMeanwhile):
        complete(failed, attempt=attempt)


def test_a_step_or_a_run_that_changed_since_it_was_seen_is_left_alone(sas, failed):
    for seen in ({"attempt": 7}, {"plan_version": "another"}):
        with pytest.raises(ChangedMeanwhile):
            complete(failed, **seen)
    failed.assert_state("Error")


def test_a_late_answer_of_the_agent_changes_nothing(sas, flow):
    flow(ALPHA, Step("beta-step", agent="beta"))
    key, place, items = kit.started("waiting")
    kit.failures.fail(place, [(items[0].claim, kit.refusal())])
    complete(Told(key), {"by": "hand"})
    late = kit.finish(place, items, {"by": "agent"})
    assert len(late.stale) == 1
    assert kit.step(key, "alpha-step").result == {"by": "hand"}
    kit.healthy()


# ------------------------------------------------------------------------------------------------------------- doors


def test_an_operator_completes_a_step_through_the_api(sas, failed):
    olga = a_client(an_account("olga", "operator"))
    address = f"/api/v1/orders/{failed.key}/complete/"

    def post(**body):
        return olga.post(address, json.dumps(body), content_type="application/json")

    assert post(result={}).status_code == 400
    assert post(reason="r", result=[]).json()["errors"].keys() == {"result"}
    answer = olga.get(f"/api/v1/orders/{failed.key}/plan/", {"action": "complete"}).json()
    assert [step["action"] for step in answer["steps"]] == ["keep", "complete", "run"]
    assert post(reason="by phone", result={"id": 7}, plan_version=answer["version"]).status_code == 202
    sas.run()
    failed.assert_state("Processed")
    assert post(reason="again").status_code == 409


def test_an_operator_completes_a_step_by_command(sas, failed):
    def manage(*words):
        call_command("complete", failed.key, "--reason", "by phone", *words, stdout=StringIO(), stderr=StringIO())

    with pytest.raises(CommandError, match="--result: expected a JSON object"):
        manage("--result", "{")
    with pytest.raises(CommandError):
        manage("--result", "[]")
    manage("--result", '{"id": 7}')
    sas.run()
    failed.assert_state("Processed")
    assert failed.results["beta-step"] == {"id": 7}


def test_an_operator_completes_a_step_in_the_console(sas, failed, operator):
    pk = Run.objects.get(key=failed.key).pk
    assert "operate/complete/" in operator.get(reverse("admin:supervision_run_change", args=[pk])).content.decode()
    address = reverse("admin:supervision_run_operate", args=[pk, "complete"])
    page = operator.get(address).content.decode()
    assert re.findall(r'<option value="([^"]*)"', page) == ["beta-step"]
    assert "counts as done" in page
    hidden = dict(re.findall(r'name="(plan_version|attempt)" value="([^"]*)"', page))
    wrong = operator.post(address, {**hidden, "reason": "by phone", "step": "beta-step", "result": "[1]"})
    assert "Expected a JSON object." in wrong.content.decode()
    assert operator.post(address, {**hidden, "reason": "by phone", "step": "beta-step", "result": '{"id": 7}'}).status_code == 302
    sas.run()
    failed.assert_state("Processed")


def test_a_run_that_only_works_offers_no_completion(transactional_db, sas, flow, operator, monkeypatch):
    monkeypatch.setattr(directory, "_used", [directory.Directory()])
    flow(ALPHA)
    key, *_ = kit.started("waiting")
    page = operator.get(reverse("admin:supervision_run_change", args=[Run.objects.get(key=key).pk])).content.decode()
    assert "operate/cancel/" in page
    assert "operate/complete/" not in page
    with pytest.raises(Refused, match="Only a step that is in Error or waits"):
        complete(Told(key))
    assert operator_verbs.cancel(key, by="olga", reason="no") == "Compensating"
