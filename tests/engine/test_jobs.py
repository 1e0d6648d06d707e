"""Bulk jobs: a verb for many orders in batches, each order once, with a result for each; stopped, resumed, and told of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from supervision.errors import ChangedMeanwhile, Refused
from supervision.insight import directory
from supervision.insight.filters import BadFilter
from supervision.jobs import reading, selection, steering, working
from supervision.models import Job, JobResult, Run, StepEvent
from supervision.operations import operator_verbs
from supervision.operations.acting import holding
from supervision.postgres import db
from supervision.store import run_verbs
from supervision.testing import run_of, step
from tests.engine import kit
from tests.support import toy

pytestmark = pytest.mark.usefixtures("engine", "own_list")
FAILED = {"process_state": "Error"}


@pytest.fixture
def own_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine's own list: the toy workflows have no rows of the shop."""
    monkeypatch.setattr(directory, "_used", [directory.Directory()])


@pytest.fixture
def olga(engine: None) -> Iterator[User]:
    """An operator."""
    user = User.objects.create_user("olga", email="olga@example.com")
    user.user_permissions.add(Permission.objects.get(content_type__app_label="supervision", codename="operate"))
    yield user
    user.user_permissions.clear()


def refused(count: int, position: int = 0, **payload: Any) -> list[str]:
    return [kit.in_error(position, **payload) for _ in range(count)]


def start(verb: str = "resubmit", by: Any = "olga", reason: str = "the service is back", **given: Any) -> Job:
    return steering.start(verb, given or FAILED, by=by, reason=reason)


def finish(job: Job) -> Job:
    """Work until no job is left."""
    while working.turn(rest=0.0):
        pass
    job.refresh_from_db()
    return job


def outcomes(job: Job) -> dict[str, str]:
    return dict(JobResult.objects.filter(job=job).values_list("key", "outcome"))


# ------------------------------------------------------------------------------------------------------ a whole job


def test_a_job_resubmits_every_order_that_its_filter_found_and_no_other(monkeypatch):
    monkeypatch.setattr(working, "BATCH", 3)
    keys, bystander = refused(7), kit.ran()

    job = finish(start())

    assert (job.state, job.total, job.position, job.done, job.failed) == ("done", 7, 7, 7, 0)
    assert outcomes(job) == dict.fromkeys(keys, "done")
    assert {kit.state(key) for key in keys} == {"Processing"}
    assert kit.state(bystander) == "Processed"
    assert kit.idle_states(keys) == {"Processed"}
    assert kit.healthy()


def test_each_orders_history_says_who_why_by_which_job_and_filter(olga):
    (key,) = refused(1)

    job = finish(start(by=olga, reason="card service mended", error_code="permanent"))

    event = StepEvent.objects.filter(run__key=key, actor="olga", position__isnull=False).latest("seq")
    assert event.why == f"card service mended (job {job.pk}: error_code=permanent)"
    entries = list(LogEntry.objects.filter(user=olga).order_by("pk").values_list("change_message", flat=True))
    assert entries == ["started for 1 orders: card service mended", f"resubmit: {event.why}"]


@pytest.mark.parametrize(
    ("verb", "ends"), [("cancel", "Cancelled"), ("compensate", "Cancelled"), ("abandon", "Cancelled"), ("skip", "Processed")]
)
def test_each_verb_does_to_every_order_what_it_does_to_one(verb, ends):
    keys = refused(3)

    job = finish(start(verb))

    assert job.done == 3
    assert kit.idle_states(keys) == {ends}
    assert kit.healthy()


def test_orders_that_fail_again_are_not_picked_up_again_and_are_counted(monkeypatch):
    monkeypatch.setattr(working, "BATCH", 2)
    keys = refused(5)
    toy.ALPHA.on_perform = kit.raising(kit.PermanentFailure("still refused"))
    job = start()
    while working.turn(seconds=0.05, rest=0.0):
        kit.run_until_idle()  # what was resubmitted fails before the job goes on
    kit.run_until_idle()

    job.refresh_from_db()
    assert (job.state, job.done) == ("done", 5)
    assert reading.in_error_again(job) == 5
    assert {row.key for row in reading.results(job, again=True)} == set(keys)
    assert all(int(step(key, "alpha-step").attempt) == 2 for key in keys)
    assert kit.healthy()


def test_an_order_that_changed_meanwhile_is_left_alone_and_its_result_says_so():
    changed, other = refused(2)
    job = start()
    operator_verbs.skip(changed, by="another operator", reason="done by hand")

    finish(job)

    assert outcomes(job) == {changed: "changed", other: "done"}
    job.refresh_from_db()
    assert (job.done, job.failed) == (1, 1)
    assert JobResult.objects.get(key=changed).code == "changed_meanwhile"
    assert kit.healthy()


def test_an_order_that_failed_again_before_its_turn_is_left_alone():
    (key,) = refused(1)
    job = start()
    operator_verbs.resubmit(key, by="another operator", reason="try")
    toy.ALPHA.on_perform = kit.raising(kit.PermanentFailure("still refused"))
    assert kit.idle_state(key) == "Error"

    finish(job)

    assert outcomes(job) == {key: "changed"}
    assert kit.state(key) == "Error"


@pytest.mark.parametrize("verb", ["resubmit", "skip", "cancel", "compensate", "abandon"])
def test_another_step_that_has_failed_at_the_same_attempt_is_left_alone(verb):
    (key,) = refused(1)
    job = start(verb)
    operator_verbs.skip(key, by="another operator", reason="done by hand")
    toy.BETA.on_perform = kit.raising(kit.PermanentFailure("refused as well"))
    assert kit.idle_state(key) == "Error"

    finish(job)

    assert outcomes(job) == {key: "changed"}
    assert (step(key, "beta-step").process_state, step(key, "beta-step").attempt) == ("Error", 1)
    assert kit.state(key) == "Error"


def test_a_cancellation_leaves_an_order_alone_that_is_being_undone_already():
    (key,) = refused(1, 1)
    job = start("cancel")
    operator_verbs.compensate(key, by="another operator", reason="hopeless")

    finish(job)

    assert outcomes(job) == {key: "changed"}
    assert kit.healthy()


def test_one_order_that_cannot_be_treated_stops_none_of_the_others(monkeypatch):
    second = refused(3)[1]
    real = operator_verbs.resubmit

    def broken(key: str, **how: Any) -> str:
        state = real(key, **how)
        if key == second:
            raise KeyError("a bug")
        return state

    monkeypatch.setattr(operator_verbs, "resubmit", broken)

    job = finish(start())

    assert outcomes(job)[second] == "failed"
    assert (job.done, job.failed, job.state) == (2, 1, "done")


def test_corrections_are_made_to_every_order():
    keys = [kit.in_error(1, "toy") for _ in range(2)]

    job = finish(steering.start("resubmit", FAILED, by="olga", reason="corrected", changes={"colour": "red"}))

    assert job.done == 2
    assert [Run.objects.get(key=key).payload["colour"] for key in keys] == ["red", "red"]


# ------------------------------------------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("verb", "given", "reason", "code"),
    [
        ("destroy", FAILED, "why", "unknown_verb"),
        ("resubmit", {}, "why", "filter_required"),
        ("resubmit", {"step": ""}, "why", "filter_required"),
        ("resubmit", FAILED, "  ", "reason_required"),
        ("resubmit", {"process_state": "Processed"}, "why", "no_orders"),
    ],
)
def test_a_job_that_makes_no_sense_is_refused_and_leaves_nothing(verb, given, reason, code):
    kit.ran()
    refused(1)

    with pytest.raises(Refused) as problem:
        steering.start(verb, given, by="olga", reason=reason)

    assert problem.value.code == code
    assert not Job.objects.exists()


def test_an_unknown_filter_is_named():
    with pytest.raises(BadFilter) as problem:
        steering.start("resubmit", {"colour": "red"}, by="olga", reason="why")

    assert problem.value.name == "colour"


def test_more_orders_than_a_job_takes_are_refused(monkeypatch):
    monkeypatch.setattr(selection, "MOST_ORDERS", 2)
    refused(3)

    with pytest.raises(Refused, match="More than 2 orders"):
        start()


def test_changes_are_refused_for_any_verb_but_resubmit():
    refused(1)

    with pytest.raises(Refused, match="Only a resubmission"):
        steering.start("cancel", FAILED, by="olga", reason="why", changes={"n": 7})


# ------------------------------------------------------------------------------------------------------ preview


def test_the_preview_counts_what_differs_among_the_orders():
    refused(3)
    kit.in_error(1, "toy")
    kit.in_error(0, unknown=True)
    kit.undoing(1, "toy")

    shown = selection.preview("resubmit", selection.by_filter({"created_after": "2020-01-01"}))

    groups = {(group.workflow, group.steps, group.key_reused): group.orders for group in shown.differ}
    assert groups == {
        ("toy-plain", ("alpha-step",), False): 3,
        ("toy-plain", ("alpha-step",), True): 1,
        ("toy", ("beta-step",), False): 1,
    }
    assert (shown.orders, shown.left_out) == (5, 1)


def test_the_preview_of_a_cancellation_names_the_steps_that_are_undone():
    kit.in_error(1, "toy")
    refused(1)

    shown = selection.preview("cancel", selection.by_filter(FAILED))

    assert {(group.workflow, group.steps) for group in shown.differ} == {("toy", ("alpha-step",)), ("toy-plain", ())}
    assert Run.objects.filter(process_state="Error").count() == 2


def test_a_filter_by_step_means_that_step_only():
    keys = refused(1), [kit.in_error(1, "toy")]

    job = finish(start(step="beta-step"))

    assert outcomes(job) == {keys[1][0]: "done"}


# ------------------------------------------------------------------------------------------------------ stop and resume


def test_a_stopped_job_does_nothing_more_until_it_is_resumed_and_then_the_rest(monkeypatch, olga):
    monkeypatch.setattr(working, "BATCH", 2)
    keys = refused(5)
    job = start(by=olga)
    assert working.turn(seconds=0.0) is True
    working._batch(working._take())  # type: ignore[arg-type]
    steering.stop(job.pk, by=olga, reason="wait a moment")

    assert working.turn(rest=0.0) is False
    job.refresh_from_db()
    assert (job.state, job.position, job.stopped_by, job.stop_reason) == ("stopped", 2, "olga", "wait a moment")
    assert [kit.state(key) for key in keys] == ["Processing"] * 2 + ["Error"] * 3
    assert kit.healthy()

    steering.resume(job.pk, by=olga, reason="go on")
    assert finish(job).done == 5
    assert kit.idle_states(keys) == {"Processed"}
    assert kit.healthy()


def test_a_job_is_stopped_and_resumed_only_from_the_state_in_which_that_makes_sense():
    refused(1)
    job = start()
    with pytest.raises(ChangedMeanwhile):
        steering.resume(job.pk, by="olga", reason="go on")
    finish(job)

    with pytest.raises(ChangedMeanwhile):
        steering.stop(job.pk, by="olga", reason="too late")
    with pytest.raises(Refused, match="no job"):
        steering.stop(job.pk + 1, by="olga", reason="which one")


def test_a_job_whose_account_may_act_no_more_is_stopped_and_operators_are_told(olga):
    refused(1)
    job = start(by=olga)
    olga.user_permissions.clear()

    finish(job)

    assert (job.state, job.stopped_by, job.position) == ("stopped", "", 0)
    assert "olga" in job.stop_reason
    assert f"job_stopped:{job.pk}" in kit.incidents()
    steering.resume(job.pk, by="another", reason="I take it over")
    assert finish(job).done == 1
    assert f"job_stopped:{job.pk}" not in kit.incidents()
    assert StepEvent.objects.filter(actor="another").exists()


def test_a_job_without_progress_is_an_incident_until_it_goes_on():
    refused(1)
    job = start()
    assert f"job_stopped:{job.pk}" not in kit.incidents()
    kit.fetch("UPDATE supervision_job SET worked_at = now() - interval '11 minutes'")

    assert f"job_stopped:{job.pk}" in kit.incidents()
    finish(job)
    assert f"job_stopped:{job.pk}" not in kit.incidents()


def test_orders_chosen_one_by_one_keep_the_attempts_that_were_seen():
    seen, gone = refused(2)
    attempts = [selection.Seen(key, int(step(key, "alpha-step").attempt)) for key in (seen, gone)]
    operator_verbs.cancel(gone, by="another", reason="hopeless")

    job = finish(steering.start_chosen("resubmit", attempts, by="olga", reason="these"))

    assert outcomes(job) == {seen: "done"}
    assert run_of(gone).process_state != "Processing"


def test_a_run_that_the_transaction_holds_is_not_read_again_unless_a_verb_has_changed_it():
    [key] = refused(1)
    pk = run_of(key).pk

    def work() -> list[int]:
        with holding(run_verbs.lock([pk]).runs):
            read = []
            for verb in (operator_verbs.resubmit, operator_verbs.cancel):
                with CaptureQueriesContext(connection) as queries:
                    verb(key, by="olga", reason="x")
                read.append(sum("FOR UPDATE" in query["sql"] and "supervision_stepstate" in query["sql"] for query in queries))
            return read

    assert db.transact(work) == [0, 1]
    assert run_of(key).process_state == "Cancelled"


def test_a_held_run_that_was_written_to_in_the_same_transaction_is_read_again():
    first, other = refused(2)
    pks = [run_of(key).pk for key in (first, other)]

    def work() -> str:
        held = run_verbs.lock(pks).runs
        operator_verbs.cancel(other, by="olga", reason="a verb on the first one may do this")
        with holding(held), pytest.raises(Refused) as refusal:
            operator_verbs.resubmit(other, by="olga", reason="x")
        assert refusal.value.code == "not_in_error", "it was read as it is now"
        return operator_verbs.resubmit(first, by="olga", reason="x")

    assert db.transact(work) == "Processing"
    assert run_of(other).process_state == "Cancelled"
