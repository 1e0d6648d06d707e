"""The commands that print: orders, order, queue_depth, dead_letters."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.core.management.base import CommandError
from django.utils.timezone import now

from orders.models import Order
from supervision import testing
from supervision.deadletters import dead_letters
from supervision.models import DeadLetter, Heartbeat, StepState
from supervision.operations import previews
from supervision.recovery import supervisor
from supervision.worker import heartbeats
from tests.commands.conftest import Manage
from tests.shopping import place

pytestmark = pytest.mark.django_db
ISO = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z"


def test_orders_lists_what_is_in_one_state(manage: Manage, an_order: str, an_order_in_error: str):
    listed = manage("orders", "--state", "Error", "--json").json

    assert [order["id"] for order in listed] == [an_order_in_error]
    assert listed[0]["failed_step"] == "charge-payment"
    assert listed[0]["last_error"] == "card_declined: the card was refused"
    assert listed[0]["total"] == "25.80"


def test_orders_shows_the_newest_first_and_says_when_there_are_more(manage: Manage, an_order: str, an_order_in_error: str):
    said = manage("orders", "--limit", 1)

    assert an_order_in_error in said.lines[1]
    assert an_order not in said.out
    assert "more" in said.lines[2]


def test_orders_counts_those_that_wait_to_be_consumed(manage: Manage, an_order: str, mug: object):
    place()

    assert "1 more are accepted" in manage("orders").out


def test_order_shows_steps_and_history(manage: Manage, an_order_in_error: str):
    number = Order.objects.get(public_id=an_order_in_error).number

    said = manage("order", number)

    assert f"order {an_order_in_error}  number {number}" in said.out
    assert "state Error" in said.out
    assert "2 x MUG-BLUE" in said.out
    assert "Processing -> Error" in said.out
    assert "card_declined: the card was refused" in said.out


def test_order_answers_as_the_api_does_with_the_events_beside(manage: Manage, an_order_in_error: str):
    answer = manage("order", an_order_in_error, "--json").json

    assert answer["process_state"] == "Error"
    assert [step["name"] for step in answer["steps"]] == [
        "reserve-stock",
        "charge-payment",
        "book-shipment",
        "notify-customer",
    ]
    assert [event["seq"] for event in answer["events"]] == list(range(1, len(answer["events"]) + 1))
    assert answer["events"][-1]["to"] == "Error"


def test_order_shows_an_order_that_is_not_consumed_yet(manage: Manage, mug: object):
    public_id = place()

    assert manage("order", public_id, "--json").json["process_state"] == "Pending"
    assert "waits to be taken up" in manage("order", public_id).out


def test_order_says_that_no_process_is_there_to_go_on_with_it(manage: Manage, mug: object):
    public_id = place()
    nothing = "no process of the role {} has ever been seen"
    told = f"{nothing.format('scheduler')}; {nothing.format('agents')}: start the workers, for example with manage.py work all"
    assert told in manage("order", public_id).out

    heartbeats.beat("scheduler")
    heartbeats.beat("agents", {"queues": ["agent.stock"]}, name="agents@somewhere")
    assert "start the workers" not in manage("order", public_id).out
    Heartbeat.objects.filter(role="agents").update(seen_at=now() - timedelta(minutes=10))
    assert re.search(r"no process of the role agents has been seen for \d+\sminutes: start the workers", manage("order", public_id).out)


def test_order_writes_every_time_in_one_form(manage: Manage, an_order: str):
    waits = {"process_state": "Pending", "locked_by": None, "complete_by": None, "turn_at": now()}
    StepState.objects.filter(run__key=an_order).update(**waits, not_before=now() + timedelta(days=3))

    said = manage("order", an_order).out

    assert re.search(rf"is postponed until {ISO}\.\)", said)
    assert not re.search(r"\d\d/\d\d/\d{4}", said)
    assert re.search(rf"^placed {ISO}, finished -$", said, re.M)
    because = manage("order", an_order, "--json").json["waiting_because"]
    assert re.search(rf"until {ISO}\.$", because)


def test_tables_name_the_zone_of_every_time(manage: Manage, an_order_in_error: str, a_dead_letter: DeadLetter):
    supervisor.sweep_once()  # opens an incident
    for command in ("orders", "incidents", "dead_letters"):
        found = re.findall(r"\d{4}-\d\d-\d\d \d\d:\d\d.{0,7}", manage(command).out)
        assert found, command
        assert [text for text in found if not text.endswith(" UTC")] == [], command


def test_order_names_the_dead_letter_that_an_order_became(manage: Manage, a_dead_letter: DeadLetter):
    said = manage("order", "broken").out
    assert f"dead letter {a_dead_letter.pk}: {a_dead_letter.reason} (manage.py dead_letters show {a_dead_letter.pk})" in said

    manage("dead_letters", "discard", str(a_dead_letter.pk), "--reason", "a test")
    assert f"dead letter {a_dead_letter.pk}, settled 20" in manage("order", "broken").out


@pytest.mark.parametrize("said", ["no-such-order", "123-456-789", "12"])
def test_order_says_so_when_nobody_knows_the_order(said: str, manage: Manage, db: None):
    with pytest.raises(CommandError, match=f"no order '{said}'"):
        manage("order", said)


def test_queue_depth_counts_per_agent_idle_ones_included(manage: Manage, an_order: str):
    depths = {depth["agent"]: depth for depth in manage("queue_depth", "--json").json}

    counts = {name: tuple(depths[name][part] for part in ("waiting", "running", "overdue")) for name in ("stock", "payment")}
    assert counts == {"stock": (1, 0, 0), "payment": (0, 0, 0)}  # a step that is claimed and not started counts as waiting
    assert depths["payment"]["oldest_seconds"] == 0.0
    assert ["stock", "1", "0", "0", "0"] in [line.split()[:5] for line in manage("queue_depth").lines]


def test_queue_depth_counts_what_is_overdue(manage: Manage, an_order: str):
    testing.expire(an_order)

    overdue = {depth["agent"]: depth["overdue"] for depth in manage("queue_depth", "--json").json}
    assert (overdue["stock"], overdue["payment"]) == (1, 0)


def test_dead_letters_lists_the_open_ones(manage: Manage, a_dead_letter: DeadLetter):
    listed = manage("dead_letters", "--json").json

    assert [letter["id"] for letter in listed] == [a_dead_letter.pk]
    assert listed[0]["order"] == "broken"
    assert a_dead_letter.reason.splitlines()[0] in manage("dead_letters", "list").out


def test_dead_letters_shows_the_exact_body(manage: Manage, a_dead_letter: DeadLetter):
    assert '{"not": "an order"}' in manage("dead_letters", "show", a_dead_letter.pk).out


def test_dead_letters_shows_bytes_that_are_no_text(manage: Manage, db: None):
    letter = dead_letters.keep("submissions.intake", b"\xff\x00{", "not JSON")

    assert manage("dead_letters", "show", letter.pk, "--json").json[0]["body"] == "\\xff\x00{"


def test_dead_letters_requeues_the_same_bytes(manage: Manage, a_dead_letter: DeadLetter):
    said = manage("dead_letters", "requeue", a_dead_letter.pk, "--reason", "the code reads it now")

    assert said.out == f"{a_dead_letter.pk}: requeued\n"
    a_dead_letter.refresh_from_db()
    assert "the code reads it now" in a_dead_letter.resolution
    assert manage("dead_letters", "--json").json == []
    assert manage("schedule", "--once").json["dead_letters"] == 1


def test_dead_letters_discards_for_good(manage: Manage, a_dead_letter: DeadLetter):
    manage("dead_letters", "discard", a_dead_letter.pk, "--reason", "a test of ours")

    assert "no open dead letters" in manage("dead_letters").out
    assert "a test of ours" in manage("dead_letters", "--all").out
    with pytest.raises(CommandError, match="1 of 1 not discarded"):
        manage("dead_letters", "discard", a_dead_letter.pk, "--reason", "again")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("requeue", 1), "needs --reason"),
        (("requeue",), "needs at least one id"),
        (("show",), "needs at least one id"),
        (("show", 12345), "no dead letter 12345"),
        (("list", 1), "list takes no ids"),
        (("burn", 1), "invalid choice"),
        (("show", "x"), "invalid whole number"),
    ],
)
def test_dead_letters_says_what_is_wrong(arguments: tuple[object, ...], complaint: str, manage: Manage, db: None):
    with pytest.raises(CommandError, match=complaint):
        manage("dead_letters", *arguments)


def test_plan_says_what_a_verb_would_do_and_changes_nothing(manage: Manage, an_order_in_error: str):
    before = list(StepState.objects.order_by("pk").values())

    said = manage("plan", an_order_in_error, "skip", "--json").json
    lines = manage("plan", an_order_in_error, "compensate").lines

    shown = previews.plan(an_order_in_error, "skip")
    assert (said["version"], [(step["name"], step["action"]) for step in said["steps"]]) == (
        shown.version,
        [("reserve-stock", "keep"), ("charge-payment", "skip"), ("book-shipment", "run"), ("notify-customer", "run")],
    )
    assert [line.split()[:3] for line in lines if " undo " in line] == [["reserve-stock", "undo", "run"]]
    assert lines[-1] == f"version of the plan: {shown.version}"
    assert list(StepState.objects.order_by("pk").values()) == before


def test_plan_without_a_verb_is_that_of_a_resubmission(manage: Manage, an_order_in_error: str):
    assert manage("plan", an_order_in_error).out == manage("plan", an_order_in_error, "resubmit").out
    assert any(line.split()[:3] == ["charge-payment", "do", "run"] for line in manage("plan", an_order_in_error).lines)


def test_plan_shows_the_reasons_of_a_refusal_and_fails(manage: Manage, an_order_in_error: str):
    with pytest.raises(CommandError, match="book-shipment"):
        manage("plan", an_order_in_error, "resume", "--step", "book-shipment")


@pytest.mark.parametrize("options", [("resume",), ("skip", "--step", "charge-payment"), ("skip", "--to", "3"), ("explode",)])
def test_plan_refuses_what_makes_no_sense(manage: Manage, an_order_in_error: str, options: tuple[str, ...]):
    with pytest.raises(CommandError, match=r"--step|--to|explode"):
        manage("plan", an_order_in_error, *options)


def test_plan_of_an_unknown_order_says_so(manage: Manage, db: None):
    with pytest.raises(CommandError, match="no order"):
        manage("plan", "n" * 22)
