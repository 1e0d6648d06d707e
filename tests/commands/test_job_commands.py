"""`--where` of the operators' commands, and `jobs`: previewed, started, worked off, stopped, resumed, shown."""

from __future__ import annotations

import pytest
from django.core.management.base import CommandError

from supervision.models import Job, StepEvent
from supervision.operations import operator_verbs
from tests.commands.conftest import Manage
from tests.support import console
from tests.support.console import fail, place, state

pytestmark = pytest.mark.django_db


def finish() -> Job:
    console.finish()
    return Job.objects.get()


def test_a_dry_run_counts_what_differs_and_needs_no_reason(manage: Manage):
    orders = [*fail(2), *fail(1, at="book-shipment")]

    said = manage("resubmit", "--where", "error_code=refused since=1h", "--dry-run")

    assert said.lines[0] == f"resubmit: 3 orders, {3 * orders[0].total} EUR; nothing was done"
    assert said.lines[1].split() == ["ORDERS", "WORKFLOW", "STATE", "STEPS", "KEY", "ERROR", "HELD"]
    assert [line.split()[0] for line in said.lines[2:]] == ["2", "1"]
    assert {state(order) for order in orders} == {"Error"}
    assert not Job.objects.exists()
    shown = manage("resubmit", "--where", "error=refused", "--dry-run", "--json").json
    assert (shown["orders"], len(shown["differ"])) == (3, 2)


def test_all_orders_that_fit_are_resubmitted_in_the_background(manage: Manage):
    failed, others = fail(2), place(1)

    said = manage("resubmit", "--where", "state=Error", "--reason", "the bank is back")

    job = Job.objects.get()
    assert said.lines == [f"job {job.pk}: resubmit of 2 orders is started", f"manage.py jobs {job.pk}"]
    assert {state(order) for order in failed} == {"Error"}
    assert finish().done == 2
    assert {state(order) for order in failed} == {"Processing"}
    assert [event.why for event in StepEvent.objects.filter(run=failed[0].run_id, to_state="Pending").order_by("seq")][-1] == (
        f"the bank is back (job {job.pk}: process_state=Error)"
    )
    assert state(others[0]) == "Processing"


@pytest.mark.parametrize(("verb", "becomes"), [("cancel", "Compensating"), ("compensate", "Compensating"), ("skip", "Processing")])
def test_each_verb_can_be_worked_off_at_once(manage: Manage, verb: str, becomes: str):
    (order,) = fail()

    said = manage(verb, "--where", "step=charge-payment", "--reason", "agreed", "--wait")

    assert said.lines[0].endswith(f"{verb} of 1 orders is done: 1 done, 0 not done")
    assert state(order) == becomes


def test_corrections_go_to_every_order(manage: Manage):
    (order,) = fail()

    manage("resubmit", "--where", "step=charge-payment", "--amend", '{"payment_method": "pm_card_mastercard"}', "--reason", "r", "--wait")

    order.run.refresh_from_db()
    assert order.run.payload["payment_method"] == "pm_card_mastercard"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--reason", "r"], "give orders' IDs, or --where"),
        (["an-id", "--where", "step=charge-payment", "--reason", "r"], "not both"),
        (["--where", "step=charge-payment", "since=1h", "--dry-run"], '--where "step=charge-payment since=1h"'),
        (["an-id", "--wait", "--reason", "r"], "goes with --where"),
        (["--where", "step=charge-payment"], "required: --reason"),
        (["--where", "step=charge-payment", "--reason", " "], "--reason must say something"),
        (["--where", "colour=red", "--dry-run"], "colour: This filter is not known"),
        (["--where", "created_after=whenever", "--dry-run"], "created_after: Expected a time"),
        (["--where", "step", "--dry-run"], "expected NAME=VALUE"),
        (["--where", "step='charge", "--dry-run"], "--where: No closing quotation"),
        (["--where", "since=1h created_after=2026-01-01", "--dry-run"], "not both"),
        (["--where", "step=charge-payment", "--step", "x", "--dry-run"], "say step=NAME"),
        (["--where", "step=charge-payment", "--attempt", "1", "--dry-run"], "about one order"),
        (["--where", "step=charge-payment", "--amend", "[]", "--dry-run"], "expected a JSON object"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(manage: Manage, arguments: list[str], problem: str):
    fail()

    with pytest.raises(CommandError, match=problem) as refused:
        manage("resubmit", *arguments)

    assert "\n" not in str(refused.value)
    assert not Job.objects.exists()


def test_no_order_that_fits_is_said(manage: Manage):
    with pytest.raises(CommandError, match="No order that fits"):
        manage("resubmit", "--where", "step=charge-payment", "--reason", "r")


def test_jobs_are_listed_and_one_is_shown_with_what_was_not_done(manage: Manage):
    assert manage("jobs").out == "no jobs\n"
    done, changed = fail(2)
    manage("resubmit", "--where", "error_code=refused", "--reason", "the bank is back")
    operator_verbs.skip(changed.public_id, by="olga", reason="paid in cash")
    job = finish()

    listed, shown = manage("jobs"), manage("jobs", job.pk)

    assert listed.lines[1].split()[:7] == [str(job.pk), "resubmit", "done", "2", "1", "1", "0"]
    assert shown.lines[:2] == [
        f"job {job.pk}: resubmit of 2 orders, done; where error_code=refused",
        "1 done (0 of them in Error again), 1 not done, 0 left",
    ]
    assert changed.public_id in shown.out
    assert done.public_id not in shown.out
    assert done.public_id in manage("jobs", job.pk, "--outcome", "done").out
    facts = manage("jobs", job.pk, "--json").json
    assert (facts["id"], facts["in_error_again"], [row["outcome"] for row in facts["results"]]) == (job.pk, 0, ["changed"])
    assert manage("jobs", "--json").json[0]["id"] == job.pk


def test_a_job_is_stopped_resumed_and_worked_off(manage: Manage):
    (order,) = fail()
    manage("resubmit", "--where", "error_code=refused", "--reason", "r")
    job = Job.objects.get()

    stopped = manage("jobs", job.pk, "--stop", "--reason", "wait")
    finish()
    assert "stopped by command" in stopped.out
    assert state(order) == "Error"

    resumed = manage("jobs", job.pk, "--resume", "--reason", "go on", "--wait")
    assert "1 done" in resumed.out
    assert state(order) == "Processing"


def test_a_stopped_job_is_ended(manage: Manage):
    (order,) = fail()
    manage("resubmit", "--where", "error_code=refused", "--reason", "r")
    job = Job.objects.get()
    manage("jobs", job.pk, "--stop", "--reason", "wait")

    ended = manage("jobs", job.pk, "--end", "--reason", "by hand")

    assert "0 done (0 of them in Error again), 1 not done, 0 left" in ended.out
    assert state(order) == "Error"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["7"], "no job 7"),
        (["--stop"], "give its ID"),
        (["7", "--stop"], "--reason must say something"),
        (["7", "--stop", "--reason", "r"], "no job 7"),
    ],
)
def test_a_job_that_is_none_is_said_in_one_line(manage: Manage, arguments: list[str], problem: str):
    with pytest.raises(Exception, match=problem):
        manage("jobs", *arguments)
