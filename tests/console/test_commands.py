"""The commands pause and resume. A pause is a row that other processes read, so it survives restarts."""

from __future__ import annotations

import json

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError
from django.utils import timezone

from orders.models import Order
from supervision import testing
from supervision.models import Pause
from supervision.operations import pauses
from tests.engine.kit import said
from tests.support.console import mug, place

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("no_hints")]


def test_everything_is_paused_for_a_while_and_resumed():
    assert said("pause", "--all", "--reason", "moving house", "--until", "15m").startswith("Everything is paused until 20")

    held = pauses.active().get()
    assert held.paused_by.startswith("command (")
    assert said("resume", "--all", "--reason", "we have moved") == "Everything is resumed\n"
    held.refresh_from_db()
    assert (held.lift_reason, pauses.active().count()) == ("we have moved", 0)


def test_an_agent_and_a_workflow_are_paused_by_name():
    assert "until an operator resumes it" in said("pause", "--agent", "payment", "--reason", "the bank is closed")
    said("pause", "--workflow", "fulfil-order", "--reason", "inventory")

    resumed = said("resume", "--agent", "payment", "--reason", "open again")

    assert resumed.splitlines()[0] == "The agent payment is resumed"
    assert resumed.splitlines()[1].startswith("still paused: The workflow fulfil-order (command (")


def test_an_order_is_paused_by_its_number_or_public_id_and_says_why_it_waits():
    (order,) = place()
    number = Order.objects.get().number

    said("pause", "--order", number, "--reason", "an odd address")

    held = Pause.objects.get()
    assert (held.scope, held.name, held.run_id) == ("order", order.public_id, order.run_id)
    assert "Paused" in said("order", order.public_id)
    testing.expire(order.public_id)  # the first step was already claimed and goes on; the pause stops the next claim
    said("supervise", "--once")
    shown = said("order", order.public_id)
    assert "is paused by command (" in shown
    assert "an odd address" in shown
    assert "Resumed" not in shown
    said("resume", "--order", order.public_id, "--reason", "it is right")
    assert "Resumed" in said("order", order.public_id)


def test_an_id_that_begins_with_a_dash_is_no_option():
    (order,) = place()
    public_id = "-XcD92GfrLw1mVpDyRh1gw"
    Order.objects.update(public_id=public_id)
    type(order.run).objects.filter(pk=order.run_id).update(key=public_id)

    assert public_id in said("pause", "--order", public_id, "--reason", "r")


def test_an_account_can_be_named_and_the_answer_can_be_json():
    User.objects.create_superuser("olga")
    until = f"{timezone.now().year + 2}-01-01T00:00:00Z"

    facts = json.loads(said("pause", "--all", "--reason", "r", "--by", "olga", "--until", until, "--json"))

    assert {"scope": "all", "paused_by": "olga", "until": until, "lifted_at": None}.items() <= facts.items()
    assert json.loads(said("resume", "--all", "--reason", "done", "--by", "olga", "--json"))["lift_reason"] == "done"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("pause", "--reason", "r"), "one of the arguments --order --agent --workflow --all is required"),
        (("pause", "--all"), "--reason"),
        (("pause", "--all", "--agent", "payment", "--reason", "r"), "not allowed with"),
        (("pause", "--all", "--reason", " "), "--reason must say something"),
        (("pause", "--agent", "paymnet", "--reason", "r"), "there is no agent 'paymnet'; there are: .*email, .*payment"),
        (("pause", "--workflow", "fulfill", "--reason", "r"), "there is no workflow 'fulfill'; there are: .*fulfil-order"),
        (("pause", "--order", "no-such-order", "--reason", "r"), "no order 'no-such-order'"),
        (("pause", "--all", "--reason", "r", "--until", "soon"), "--until: Expected a time"),
        (("pause", "--all", "--reason", "r", "--until", "2020-01-01T00:00Z"), "passed already"),
        (("pause", "--all", "--reason", "r", "--until", "9999-12-31T23:59-12:00"), "--until: Expected a time at most ten years from now"),
        (("pause", "--all", "--reason", "r", "--by", "no-such-user"), "no account named 'no-such-user'"),
        (("resume", "--all", "--reason", "r"), "Everything is not paused"),
        (("resume", "--agent", "payment", "--reason", "r"), "The agent payment is not paused"),
    ],
)
def test_a_mistake_is_one_clear_line(arguments: tuple[str, ...], words: str):
    mug()

    with pytest.raises(CommandError, match=words):
        said(*arguments)
    assert not Pause.objects.exists()
