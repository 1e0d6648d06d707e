"""Another operator decides once: the verb is carried out under the guards of that moment, or nothing is done."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.core import mail
from django.db import connection
from django.utils import timezone

from orders.models import Order
from supervision import testing
from supervision.approvals import deciding, waiting
from supervision.errors import AwaitsApproval, ChangedMeanwhile, NotPermitted, Refused
from supervision.incidents import lifecycle
from supervision.ledger import reconciliation
from supervision.models import Approval, Finding, Incident, Notification, StepEvent
from supervision.operations import operator_verbs
from supervision.outbox import notifications
from supervision.postgres import db
from tests.approvals.kit import ask
from tests.commands.test_command_line import database_url
from tests.support import console

pytestmark = pytest.mark.usefixtures("shop")


BANK = """
from supervision.ledger import reconciliation

class Bank:
    service = "bank"

    def __init__(self):
        self.settled = []

    def settle(self, found, verb, *, by, reason, tries):
        if found.order == "refuses":
            raise reconciliation.CannotSettle("the bank is closed")
        self.settled.append((verb, by))
        return "25.80 EUR given back"

reconciliation._sources["bank"] = bank = Bank()
"""


@pytest.fixture
def bank() -> Iterator[list[Any]]:
    """A service at which findings can be settled; yields what it did."""
    names: dict[str, Any] = {}
    exec(BANK, names)  # noqa: S102 - the same text runs in the processes of `killed_at`
    yield names["bank"].settled
    reconciliation._sources.pop("bank")


def killed_at(point: str, call: str) -> None:
    """Run this call in a process that dies at the failpoint."""
    code = f"import django; django.setup()\n{BANK}\n" + (
        "from django.core.management import call_command\n"
        "from supervision.outbox import notifications\n"
        "from supervision.runtime import failpoints\n"
        "from supervision.wakeup import hints\n"
        f"hints.enabled = False; failpoints.load(); {call}"
    )
    settings = {"DJANGO_SETTINGS_MODULE": "sasproject.settings", "DATABASE_URL": database_url(connection.settings_dict["NAME"])}
    settings |= {"APPROVAL_ABOVE": "20", "FAILPOINTS": f"{point}=kill9", "ALLOW_FAILPOINTS": "1", "DEBUG": "1"}
    command = [sys.executable, "-c", code]
    died = subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True, timeout=100, check=False)
    assert died.returncode == -9, died.stderr


def test_an_approval_carries_the_verb_out_once_with_both_names_in_the_history(olga: User, bob: User):
    order, number = ask(olga)

    row = deciding.approve(number, by=bob, reason="seen the receipt")

    newest = StepEvent.objects.filter(run__key=order.public_id, to_state="Skipped").get()
    assert (newest.actor, newest.why) == ("olga, approved by bob", "goods were paid in cash (approved: seen the receipt)")
    assert (row.state, row.decided_by, console.state(order)) == ("approved", "bob", "Processing")
    assert row.carried_out_at is not None
    assert LogEntry.objects.get(object_id=str(number), user=bob).change_message == "approved: seen the receipt"
    with pytest.raises(ChangedMeanwhile, match="bob"):
        deciding.approve(number, by=console.person("carl", "operator"), reason="me too")


@pytest.mark.parametrize("decide", [deciding.approve, deciding.refuse])
def test_the_operator_who_asked_decides_nothing(decide: Any, olga: User):
    order, number = ask(olga)

    with pytest.raises(Refused, match="another operator") as refusal:
        decide(number, by=olga, reason="it is fine")

    assert (refusal.value.code, console.state(order), Approval.objects.get().state) == ("same_operator", "Error", "pending")


def clerk(name: str, *rights: str) -> User:
    """An account with these rights of the engine alone."""
    user = console.person(name, "viewer")
    user.groups.clear()
    user.user_permissions.set(Permission.objects.filter(content_type__app_label="supervision", codename__in=rights))
    return User.objects.get(pk=user.pk)


@pytest.mark.parametrize("decide", [deciding.approve, deciding.refuse])
def test_who_may_not_skip_at_an_agent_decides_no_skip_there(decide: Any, olga: User):
    order, number = ask(olga)

    with pytest.raises(NotPermitted):
        decide(number, by=clerk("carla", "approve_verb", "skip_run_at_stock"), reason="ok")
    assert (Approval.objects.get(pk=number).state, console.state(order)) == ("pending", "Error")

    assert decide(number, by=clerk("dora", "approve_verb", "skip_run_at_payment"), reason="ok").state != "pending"


def test_a_renamed_account_stays_the_same_operator(olga: User):
    _order, number = ask(olga)
    User.objects.filter(pk=olga.pk).update(username="olga2")
    olga.refresh_from_db()

    with pytest.raises(Refused, match="another operator"):
        deciding.approve(number, by=olga, reason="it is fine")


def test_a_refusal_does_nothing_and_is_kept(olga: User, bob: User):
    order, number = ask(olga)

    row = deciding.refuse(number, by=bob, reason="no receipt")

    assert (row.state, row.decision_reason, console.state(order)) == ("refused", "no receipt", "Error")
    with pytest.raises(ChangedMeanwhile):
        deciding.approve(number, by=bob, reason="after all")


def test_an_order_that_changed_meanwhile_is_left_alone(olga: User, bob: User):
    order, number = ask(olga)
    operator_verbs.resubmit(order.public_id, by=bob, reason="another try")

    with pytest.raises(ChangedMeanwhile, match="cannot be done any more"):
        deciding.approve(number, by=bob, reason="seen the receipt")

    row = Approval.objects.get()
    assert (row.state, row.decided_by, console.state(order)) == ("failed", "bob", "Processing")
    assert "no step is in Error" in row.outcome


def test_more_money_than_was_approved_is_never_moved(olga: User, bob: User):
    order, number = ask(olga)
    Order.objects.filter(pk=order.pk).update(total="99.00")

    with pytest.raises(ChangedMeanwhile, match=r"99.00 EUR are at stake now"):
        deciding.approve(number, by=bob, reason="seen the receipt")

    assert console.state(order) == "Error"


def test_asking_again_makes_no_second_request_and_a_changed_order_a_new_one(olga: User, bob: User):
    order, first = ask(olga)

    assert ask(bob, order, "the same from bob")[1] == first
    order.run.steps.filter(name="charge-payment").update(attempt=7)
    _order, second = ask(olga, order)

    assert [row.state for row in Approval.objects.order_by("pk")] == ["failed", "pending"]
    assert second != first


def test_a_request_expires_and_can_not_be_approved_any_more(olga: User, bob: User, tuned: Any):
    order, number = ask(olga)
    Approval.objects.update(expires_at="2020-01-01T00:00Z")

    with pytest.raises(ChangedMeanwhile, match="not decided before"):
        deciding.approve(number, by=bob, reason="late")
    assert list(waiting.pending()) == []
    waiting.expire()

    assert (Approval.objects.get().state, console.state(order)) == ("expired", "Error")
    assert ask(olga, order)[1] != number


def test_other_operators_are_told_once_when_it_is_asked_and_once_when_it_is_over(olga: User, bob: User, tuned: Any):
    tuned(OPERATOR_EMAILS=["operators@shop.example"])
    orders = [ask(olga)[1], ask(olga)[1]]

    for _turn in range(2):
        lifecycle.look()
        notifications.deliver_due()
    told = [each for each in mail.outbox if "approve" in each.subject]
    assert len(told) == 1
    assert "51.60 EUR" in told[0].subject
    for number in orders:
        deciding.approve(number, by=bob, reason="seen")
    lifecycle.look()

    assert Incident.objects.get(kind="approval").closed_at is not None


def test_settling_is_carried_out_by_the_outbox_and_a_failure_is_shown(olga: User, bob: User, bank: list[Any]):
    facts = {"service": "bank", "kind": "orphan_charge", "amount": "25.80", "currency": "EUR", "verbs": ["refund"]}
    good, bad = (Finding.objects.create(**facts, order_key=order) for order in ("order", "refuses"))
    for finding in (good, bad):
        with pytest.raises(AwaitsApproval) as waits:
            reconciliation.settle(finding.pk, "refund", by=olga, reason="charged twice")
        deciding.approve(waits.value.approval, by=bob, reason="looked at the bank")
    assert bank == []
    notifications.deliver_due(lane=notifications.CALLS)

    rows = {row.subject: row for row in Approval.objects.all()}
    assert bank == [("refund", "olga, approved by bob")]
    assert (rows[str(good.pk)].state, rows[str(good.pk)].outcome) == ("approved", "25.80 EUR given back")
    assert (rows[str(bad.pk)].state, rows[str(bad.pk)].outcome) == ("failed", "the bank is closed")
    good.refresh_from_db(), bad.refresh_from_db()
    assert (good.settled_by, bad.closed_at) == ("olga, approved by bob", None)


# ------------------------------------------------------------------------------------------------------- races


def test_of_two_operators_at_once_one_approves(olga: User, bob: User):
    carl = console.person("carl", "operator")
    for order in console.fail(5):
        number = ask(olga, order)[1]

        answers = testing.at_once(*(partial(deciding.approve, number, by=by, reason="seen") for by in (bob, carl)))

        (won,) = [answer for answer in answers if isinstance(answer, Approval)]
        (lost,) = [answer for answer in answers if not isinstance(answer, Approval)]
        assert isinstance(lost, ChangedMeanwhile), lost
        assert won.decided_by in str(lost)
        assert StepEvent.objects.filter(run__key=order.public_id, to_state="Skipped").count() == 1


def test_one_approves_while_the_other_refuses(olga: User, bob: User):
    carl = console.person("carl", "operator")
    for order in console.fail(5):
        number = ask(olga, order)[1]

        testing.at_once(partial(deciding.approve, number, by=bob, reason="seen"), partial(deciding.refuse, number, by=carl, reason="no"))

        row = Approval.objects.get(pk=number)
        assert (row.state, console.state(order)) in {("approved", "Processing"), ("refused", "Error")}


def test_an_approval_that_waits_for_the_expiry_loses(olga: User, bob: User):
    """The sweep has ended the request and not committed yet, when the approval comes."""
    order, number = ask(olga)
    ended, go_on, answers = threading.Event(), threading.Event(), []

    def expire() -> None:
        def work() -> None:
            db.fetch("UPDATE supervision_approval SET expires_at = now()")
            waiting.expire()
            ended.set()
            go_on.wait(20)

        db.transact(work)
        connection.close()

    def approve() -> None:
        ended.wait(20)
        threading.Timer(0.2, go_on.set).start()
        try:
            answers.append(deciding.approve(number, by=bob, reason="seen"))
        except Refused as refusal:
            answers.append(refusal)
        connection.close()

    threads = [threading.Thread(target=expire), threading.Thread(target=approve)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert isinstance(answers[0], ChangedMeanwhile)
    assert (Approval.objects.get().state, console.state(order)) == ("expired", "Error")


@pytest.mark.parametrize(
    ("point", "state", "run"), [("approval.before_commit", "pending", "Error"), ("approval.after_commit", "approved", "Processing")]
)
def test_a_process_that_dies_while_it_approves_leaves_all_or_nothing(point: str, state: str, run: str, olga: User, bob: User):
    order, number = ask(olga)

    killed_at(point, f"call_command('approvals', 'approve', '{number}', '--by', 'bob', '--reason', 'seen')")

    assert (Approval.objects.get().state, console.state(order)) == (state, run)
    if state == "pending":
        deciding.approve(number, by=bob, reason="once more")
    assert console.state(order) == "Processing"
    assert StepEvent.objects.filter(run__key=order.public_id, to_state="Skipped").count() == 1


@pytest.mark.parametrize("point", ["approval.after_commit", "approval.after_call"])
def test_a_process_that_dies_while_it_settles_leaves_the_rest_to_the_outbox(point: str, olga: User, bob: User, bank: list[Any]):
    finding = Finding.objects.create(service="bank", kind="orphan_charge", amount="25.80", currency="EUR", verbs=["refund"])
    with pytest.raises(AwaitsApproval) as waits:
        reconciliation.settle(finding.pk, "refund", by=olga, reason="charged twice")
    number = waits.value.approval
    if point == "approval.after_call":
        deciding.approve(number, by=bob, reason="seen")
        killed_at(point, "notifications.deliver_due()")
    else:
        killed_at(point, f"call_command('approvals', 'approve', '{number}', '--by', 'bob', '--reason', 'seen')")
    assert Approval.objects.get().carried_out_at is None
    Notification.objects.update(not_before="2020-01-01T00:00Z")

    notifications.deliver_due()

    finding.refresh_from_db()
    assert (Approval.objects.get().outcome, finding.tries) == ("25.80 EUR given back", 1)


def test_the_right_to_settle_is_enough_to_approve_a_settlement(olga: User, bank: list[Any]):
    finding = Finding.objects.create(service="bank", kind="orphan_charge", amount="25.80", currency="EUR", verbs=["refund"])
    with pytest.raises(AwaitsApproval) as waits:
        reconciliation.settle(finding.pk, "refund", by=olga, reason="charged twice")
    sara = console.person("sara", "viewer")
    sara.user_permissions.set(Permission.objects.filter(codename__in=["approve_verb", "settle_finding"]))

    assert deciding.approve(waits.value.approval, by=sara, reason="seen").state == "approved"


def test_a_settlement_that_may_still_run_is_waited_for(olga: User, bob: User, bank: list[Any]):
    finding = Finding.objects.create(service="bank", kind="orphan_charge", amount="25.80", currency="EUR", verbs=["refund"])
    with pytest.raises(AwaitsApproval) as waits:
        reconciliation.settle(finding.pk, "refund", by=olga, reason="charged twice")
    deciding.approve(waits.value.approval, by=bob, reason="seen")
    Finding.objects.update(settling_until=timezone.now() + timedelta(minutes=2))

    notifications.deliver_due()
    assert (Approval.objects.get().state, Approval.objects.get().carried_out_at, bank) == ("approved", None, [])
    Finding.objects.update(settling_until="2020-01-01T00:00Z")
    Notification.objects.update(not_before="2020-01-01T00:00Z")
    notifications.deliver_due()

    assert len(bank) == 1
