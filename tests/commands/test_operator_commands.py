"""The operators' commands: resubmit, cancel, compensate, skip."""

from __future__ import annotations

import json

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.core.management.base import CommandError

from orders.models import Order
from supervision import testing
from supervision.incidents import lifecycle
from supervision.models import DeadLetter, Incident, Run, StepEvent, StepState
from supervision.operations import previews
from tests.commands.conftest import Manage
from tests.shopping import place

pytestmark = pytest.mark.django_db


def test_resubmit_runs_the_failed_step_again_and_keeps_the_reason(manage: Manage, an_order_in_error: str):
    said = manage("resubmit", an_order_in_error, "--reason", "the customer sent a new card")

    assert said.out == f"{an_order_in_error}: Processing\n"
    assert testing.step(an_order_in_error, "charge-payment").process_state == "Pending"
    assert testing.step(an_order_in_error, "reserve-stock").process_state == "Processed"
    newest = StepEvent.objects.filter(run__key=an_order_in_error).order_by("-seq").first()
    assert newest.why == "the customer sent a new card"
    assert newest.actor.startswith("command (")


def test_a_verb_takes_the_number_of_an_order_with_or_without_its_dashes(manage: Manage, an_order_in_error: str):
    number = Order.objects.get(public_id=an_order_in_error).number

    said = manage("resubmit", number.replace("-", ""), "--reason", "try again")

    assert said.out.endswith(": Processing\n")


def test_resubmit_is_refused_for_an_order_that_is_not_in_error(manage: Manage, an_order: str):
    with pytest.raises(CommandError, match="no step is in Error"):
        manage("resubmit", an_order, "--reason", "impatience")


def test_resubmit_is_refused_when_the_attempt_seen_is_gone(manage: Manage, an_order_in_error: str):
    with pytest.raises(CommandError, match="attempt"):
        manage("resubmit", an_order_in_error, "--attempt", 7, "--reason", "I saw the seventh")

    assert manage("resubmit", an_order_in_error, "--attempt", 1, "--reason", "I saw the first")


def test_resubmit_corrects_the_fields_that_the_step_names(manage: Manage, an_order_in_error: str):
    manage("resubmit", an_order_in_error, "--amend", '{"payment_method": "pm_card_mastercard"}', "--reason", "another card")

    assert Run.objects.get(key=an_order_in_error).payload["payment_method"] == "pm_card_mastercard"


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ("{", "--amend: expected a JSON object"),
        ("[1]", "--amend: expected a JSON object"),
        ('{"total": "1"}', "total cannot be changed"),
    ],
)
def test_a_correction_that_is_none_is_refused_and_changes_nothing(manage: Manage, an_order_in_error: str, said: str, problem: str):
    with pytest.raises(CommandError, match=problem):
        manage("resubmit", an_order_in_error, "--amend", said, "--reason", "r")
    with pytest.raises(CommandError, match="single ID"):
        manage("resubmit", an_order_in_error, "another", "--amend", "{}", "--reason", "both")

    assert testing.step(an_order_in_error, "charge-payment").process_state == "Error"


def test_an_attempt_belongs_to_one_order(manage: Manage, an_order_in_error: str):
    with pytest.raises(CommandError, match="single ID"):
        manage("resubmit", an_order_in_error, "another", "--attempt", 1, "--reason", "both")


def test_a_refused_order_does_not_hold_up_the_others(manage: Manage, an_order_in_error: str):
    with pytest.raises(CommandError, match="1 of 2 refused"):
        manage("resubmit", "no-such-order", an_order_in_error, "--reason", "both")

    assert testing.run_of(an_order_in_error).process_state == "Processing"


def test_skip_goes_on_without_the_failed_step(manage: Manage, an_order_in_error: str):
    said = manage("skip", an_order_in_error, "--reason", "paid in cash")

    assert said.out == f"{an_order_in_error}: Processing\n"
    assert testing.step(an_order_in_error, "charge-payment").process_state == "Skipped"


def test_compensate_undoes_what_was_done(manage: Manage, an_order_in_error: str):
    said = manage("compensate", an_order_in_error, "--reason", "out of business")

    assert said.out == f"{an_order_in_error}: Compensating\n"
    assert testing.step(an_order_in_error, "reserve-stock", "undo").process_state == "Pending"


def test_cancel_ends_an_order_on_which_nobody_has_begun_to_work(manage: Manage, an_order: str):
    said = manage("cancel", an_order, "--reason", "the customer called")

    assert said.out == f"{an_order}: Cancelled\n"


def test_the_answer_is_json_where_asked(manage: Manage, an_order: str):
    assert manage("cancel", an_order, "--reason", "the customer called", "--json").json == {
        "id": an_order,
        "process_state": "Cancelled",
    }


def test_a_refusal_is_json_too(manage: Manage, an_order: str, capsys: pytest.CaptureFixture[str]):
    manage("cancel", an_order, "--reason", "once")

    with pytest.raises(CommandError, match="can no longer be cancelled"):
        manage("cancel", an_order, "--reason", "twice", "--json")


def settles(letter: DeadLetter) -> str:
    """What has to be said about an order that is a dead letter."""
    reason = letter.reason.splitlines()[0].rstrip(" .")
    assert "expected" in reason or "required" in reason, "the reason has to say something"
    return f"The order is a dead letter ({letter.pk}): {reason}. Remove the cause and requeue it, or discard it: `manage.py dead_letters"


@pytest.mark.parametrize("verb", ["resubmit", "skip", "compensate"])
def test_a_verb_on_a_dead_letter_says_why_it_is_one_and_what_settles_it(verb: str, manage: Manage, a_dead_letter: DeadLetter):
    with pytest.raises(CommandError) as refused:
        manage(verb, "broken", "--reason", "try again")
    assert settles(a_dead_letter) in str(refused.value)
    assert f"requeue {a_dead_letter.pk} --reason TEXT" in str(refused.value)

    manage("dead_letters", "discard", a_dead_letter.pk, "--reason", "spam")
    with pytest.raises(CommandError, match=r"was a dead letter .* It is settled: command: discarded: spam"):
        manage(verb, "broken", "--reason", "try again")


def test_the_cancellation_of_a_dead_letter_is_kept_and_its_answer_says_what_settles_it(manage: Manage, a_dead_letter: DeadLetter):
    said = manage("cancel", "broken", "--reason", "the customer called").out

    assert said.startswith("broken: Pending. The cancellation is kept: if the order is requeued, it ends Cancelled. ")
    assert settles(a_dead_letter) in said
    assert settles(a_dead_letter) in manage("cancel", "broken", "--reason", "once more", "--json").json["remark"]


def test_a_verb_on_an_order_that_is_not_taken_up_yet_says_so(manage: Manage, mug: object):
    key = place()

    with pytest.raises(CommandError, match="still waiting to be taken up"):
        manage("resubmit", key, "--reason", "impatience")
    assert manage("cancel", key, "--reason", "the customer called").out == f"{key}: Pending\n"


def test_a_named_account_acts_and_is_on_record(manage: Manage, an_order_in_error: str):
    user = User.objects.create_superuser("olga")

    manage("resubmit", an_order_in_error, "--reason", "looked into it", "--by", "olga")

    assert LogEntry.objects.get(user=user).change_message == "resubmit: looked into it"


@pytest.mark.parametrize("verb", ["resubmit", "cancel", "compensate", "skip"])
def test_a_verb_demands_a_reason_and_a_known_order(verb: str, manage: Manage, db: None):
    with pytest.raises(CommandError, match="--reason"):
        manage(verb, "some-order")
    with pytest.raises(CommandError, match="--reason must say something"):
        manage(verb, "some-order", "--reason", "  ")
    with pytest.raises(CommandError, match="no order 'some-order'"):
        manage(verb, "some-order", "--reason", "because")
    with pytest.raises(CommandError, match="no account named 'no-such-user'"):
        manage(verb, "some-order", "--reason", "because", "--by", "no-such-user")


def test_json_lines_can_be_fed_from_the_list_of_orders(manage: Manage, an_order_in_error: str):
    ids = [order["id"] for order in json.loads(manage("orders", "--state", "Error", "--json").out)]

    said = manage("resubmit", *ids, "--reason", "the outage is over", "--json")

    assert [json.loads(line)["process_state"] for line in said.lines] == ["Processing"]


@pytest.mark.parametrize("public_id", ["-XcD92GfrLw1mVpDyRh1gw", "--D92GfrLw1mVpDyRh1gwQ", "-hXcD92GfrLw1mVpDyRh1g"])
def test_an_id_that_begins_with_a_dash_is_no_option(public_id: str, manage: Manage, an_order: str):
    Order.objects.filter(public_id=an_order).update(public_id=public_id)
    Run.objects.filter(key=an_order).update(key=public_id)

    assert manage("order", public_id, "--json").json["id"] == public_id
    assert manage("cancel", public_id, "--reason", "no dash wanted", "--json").json["id"] == public_id


def test_the_incidents_are_listed_with_what_they_hold_and_acknowledged(manage: Manage, an_order_in_error: str):
    lifecycle.look()
    order = Order.objects.get(public_id=an_order_in_error)

    listed = manage("incidents").out
    (row,) = json.loads(manage("incidents", "--json").out)
    said = manage("incidents", "--acknowledge", str(row["id"]), "--reason", "the bank is asked")

    assert "step_error" in listed
    assert f"{order.total} {order.currency}" in listed
    assert (row["orders"], row["held"]) == (1, [{"amount": str(order.total), "currency": order.currency}])
    assert row["link"].endswith(f"/admin/supervision/incident/{row['id']}/change/")
    assert said.out == f"incident {row['id']} is acknowledged\n"
    assert json.loads(manage("incidents", "--json").out)[0]["acknowledged_by"] == "command"


def test_incidents_that_are_over_are_listed_when_asked_for(manage: Manage):
    assert manage("incidents").out == "no open incidents\n"
    Incident.objects.create(kind="starvation", cause="starvation:x", title="It was.", closed_at="2026-01-01T00:00Z")

    assert manage("incidents").out == "no open incidents\n"
    assert "It was." in manage("incidents", "--all").out


@pytest.mark.parametrize(
    ("words", "complaint"), [(["--acknowledge", "1"], "needs --reason"), (["--acknowledge", "1", "--reason", "r"], "no incident 1")]
)
def test_a_mistake_in_acknowledging_is_one_line(manage: Manage, words: list[str], complaint: str):
    with pytest.raises(CommandError, match=complaint):
        manage("incidents", *words)


STALE = "has changed since the plan was made"


@pytest.mark.parametrize(
    ("verb", "more"),
    [
        ("resubmit", []),
        ("resubmit", ["--from", "reserve-stock"]),
        ("skip", []),
        ("compensate", []),
        ("cancel", []),
        ("abandon", []),
        ("complete", ["--result", '{"id": "pi_1"}']),
    ],
)
def test_a_verb_for_the_plan_that_was_seen_is_refused_once_the_order_has_changed(
    manage: Manage, an_order_in_error: str, verb: str, more: list[str]
):
    planned = ["resume", "--step", more[1]] if "--from" in more else [verb]
    shown = manage("plan", an_order_in_error, *planned)
    version = shown.lines[-1].removeprefix("version of the plan: ")
    if verb != "complete":
        told = [word for word in more if word in ("--from", "reserve-stock")]
        assert manage(verb, an_order_in_error, *told, "--dry-run").out == shown.out
    StepState.objects.filter(run__key=an_order_in_error, process_state="Error").update(attempt=9)
    before = list(StepState.objects.order_by("pk").values())

    with pytest.raises(CommandError, match=STALE):
        manage(verb, an_order_in_error, *more, "--plan-version", version, "--reason", "as planned")
    assert list(StepState.objects.order_by("pk").values()) == before

    version = previews.plan(an_order_in_error, "skip").version
    assert manage(verb, an_order_in_error, *more, "--plan-version", version, "--reason", "as planned").out


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("skip", "one", "two", "--plan-version", "x", "--reason", "r"), "single ID"),
        (("complete", "one", "two", "--plan-version", "x", "--reason", "r"), "single ID"),
        (("move", "--workflow", "fulfil-order", "--from", "1", "--plan-version", "x", "--reason", "r"), "single ID"),
        (("skip", "--where", "step=charge-payment", "--plan-version", "x", "--reason", "r"), "does not go with --where"),
        (("skip", "one", "--plan-version", " ", "--reason", "r"), "expected the version"),
        (("skip", "one", "--plan-version", "x", "--dry-run"), "goes with the verb itself"),
        (("skip", "one", "two", "--dry-run"), "single ID"),
    ],
)
def test_a_plans_version_is_about_one_order(manage: Manage, an_order_in_error: str, words: tuple[str, ...], problem: str):
    with pytest.raises(CommandError, match=problem):
        manage(*words)
