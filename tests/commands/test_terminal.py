"""What customers and services wrote reaches an operator's terminal as text."""

from __future__ import annotations

import pytest

from supervision.models import Run, StepState
from supervision.operations import operator_verbs
from tests.commands.conftest import Manage
from tests.support.console import place

pytestmark = pytest.mark.django_db
HOSTILE = "sorry\x1b]0;owned\x07\x1b[2J\r\u202etxet\x9b31m"


@pytest.mark.parametrize("command", ["order", "orders", "plan"])
def test_an_escape_sequence_in_a_customers_reason_or_an_error_does_nothing_to_the_terminal(command: str, manage: Manage, monkeypatch):
    (order,) = place()
    run = Run.objects.get(key=order.public_id)
    StepState.objects.filter(run=run, position=0).update(process_state="Error", locked_by=None, last_error=HOSTILE)
    Run.objects.filter(pk=run.pk).update(process_state="Error")
    operator_verbs.cancel(order.public_id, by="olga", reason=HOSTILE)
    arguments = {"order": (order.public_id,), "orders": (), "plan": (order.public_id, "resubmit")}[command]

    said = manage(command, *arguments)

    assert not {"\x1b", "\x07", "\r", "\u202e", "\x9b"} & set(said.out + said.err)
    if command == "order":
        assert "sorry\\u001b]0;owned" in said.out


def test_json_stays_json(manage: Manage):
    (order,) = place()
    StepState.objects.filter(run__key=order.public_id, position=0).update(last_error=HOSTILE)

    said = manage("order", order.public_id, "--json")

    assert not {"\x1b", "\u202e", "\x9b"} & set(said.out)
    assert HOSTILE in [step["last_error"] for step in said.json["steps"]]
