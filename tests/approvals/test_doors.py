"""No door lets an operator's verb on more money than the limit act at once: each leaves the order as it is, and a request."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client

from orders.models import Order
from supervision.errors import AwaitsApproval, SupervisionError
from supervision.jobs import working
from supervision.ledger import reconciliation
from supervision.models import Approval, Finding, Run
from supervision.operations import operator_verbs
from supervision.retry import Outcome
from tests.shopping import a_client
from tests.support import console

pytestmark = pytest.mark.usefixtures("shop")
WHY = {"reason": "the customer has called"}


def _failed() -> Order:
    """In Error at the payment."""
    return console.fail()[0]


def _charged() -> Order:
    """In Error after the payment."""
    return console.fail(at="book-shipment")[0]


def _browser(olga: User) -> Client:
    client = Client()
    client.force_login(olga)
    return client


def _page(verb: str, **fields: Any) -> Callable[[Order, User], Any]:
    return lambda order, olga: console.confirm(_browser(olga), order, verb, **WHY, **fields)


def _api(verb: str, **fields: Any) -> Callable[[Order, User], Any]:
    def call(order: Order, olga: User) -> None:
        answer = a_client(olga).post(f"/api/v1/orders/{order.public_id}/{verb}/", {**WHY, **fields}, headers={"Idempotency-Key": "k"})
        assert (answer.status_code, answer.json()) == (202, {"approval": Approval.objects.get().pk, "state": "pending"})

    return call


def _command(verb: str, *options: str) -> Callable[[Order, User], Any]:
    return lambda order, olga: call_command(verb, order.public_id, "--reason", "r", "--by", olga.username, *options)


def _storefront(order: Order, olga: User) -> None:
    _browser(olga).post(f"/orders/{order.public_id}/cancel/", WHY)


def _bulk(order: Order, olga: User) -> None:
    _browser(olga).post("/admin/orders/order/bulk/cancel/", {**WHY, "chosen": f"{order.public_id}:1"})
    working.turn(rest=0)


def _signal(order: Order, olga: User) -> None:
    with pytest.raises(AwaitsApproval):
        operator_verbs.signal(order.public_id, "transfer-received", by=olga, reason="seen at the bank", payload={"amount": "25.80"})


FAILED_AT_PAYMENT: dict[str, Callable[[Order, User], Any]] = {
    "page skip": _page("skip"),
    "page complete": _page("complete", step="charge-payment", result="{}"),
    "api skip": _api("skip"),
    "api complete": _api("complete", result={}),
    "command skip": _command("skip"),
    "command complete": _command("complete", "--result", "{}"),
    "signal": _signal,
    "api signal": _api("signals/transfer-received", payload={"amount": "25.80"}),
    "command signal": _command("signal", "--name", "transfer-received", "--payload", '{"amount": "25.80"}'),
}
CHARGED: dict[str, Callable[[Order, User], Any]] = {
    "page compensate": _page("compensate"),
    "page cancel": _page("cancel"),
    "page abandon": _page("abandon"),
    "page resume": _page("resume", step="charge-payment"),
    "page bulk cancel": _bulk,
    "api compensate": _api("compensate"),
    "api cancel": _api("cancel"),
    "api abandon": _api("abandon"),
    "api resume": _api("resume-from", step="charge-payment"),
    "command compensate": _command("compensate"),
    "command cancel": _command("cancel"),
    "command abandon": _command("abandon"),
    "command resume": _command("resubmit", "--from", "charge-payment"),
    "storefront": _storefront,
}
CASES = [pytest.param(_failed, act, id=name) for name, act in FAILED_AT_PAYMENT.items()]
CASES += [pytest.param(_charged, act, id=name) for name, act in CHARGED.items()]


@pytest.mark.parametrize(("made", "act"), CASES)
def test_no_door_passes_the_gate(made: Callable[[], Order], act: Callable[[Order, User], Any], olga: User):
    order = made()
    before = _rows(order)

    act(order, olga)

    (asked,) = Approval.objects.all()
    assert _rows(order) == before
    assert (asked.state, asked.asked_by, asked.order_key, asked.stake) == ("pending", "olga", order.public_id, [["25.80", "EUR"]])


def _rows(order: Order) -> Any:
    run = Run.objects.get(key=order.public_id)
    steps = run.steps.order_by("direction", "position").values_list("name", "direction", "process_state", "attempt", "generation")
    return run.process_state, run.cancel_requested_at, list(steps)


@pytest.mark.parametrize("door", ["console", "api", "command"])
def test_a_new_key_for_a_payment_whose_outcome_is_unknown_needs_two(door: str, olga: User):
    (order,) = console.fail(outcome=Outcome.PERMANENT)
    order.run.steps.filter(name="charge-payment").update(effect="unknown")
    act = {
        "console": _page("resubmit", new_generation="on"),
        "api": _api("resubmit", new_generation=True),
        "command": _command("resubmit", "--new-generation"),
    }[door]

    act(order, olga)

    assert (Approval.objects.get().verb, console.state(order)) == ("resubmit", "Error")


def test_what_moves_no_money_passes(olga: User):
    declined, unbooked = console.fail()[0], _charged()

    operator_verbs.resubmit(declined.public_id, by=olga, reason="another card", amend={"payment_method": "pm_card_visa"})
    operator_verbs.skip(unbooked.public_id, by=olga, reason="sent by hand")

    assert not Approval.objects.exists()
    assert {console.state(declined), console.state(unbooked)} == {"Processing"}


def test_the_customer_cancels_alone_and_a_system_actor_too(olga: User):
    ada = console.person("ada", "customer", staff=False)
    order = _charged()
    Order.objects.filter(pk=order.pk).update(account=ada)

    assert a_client(ada).post(f"/api/v1/orders/{order.public_id}/cancel/", WHY).status_code == 202
    assert (console.state(order), Approval.objects.count()) == ("Compensating", 0)


def test_settling_a_finding_of_more_money_needs_two(olga: User, capsys: Any, settings: Any):
    settings.STRIPE_API_BASE = "http://127.0.0.1:9"  # nothing listens there
    facts = {"service": "payment", "kind": "orphan_charge", "currency": "EUR", "verbs": ["refund", "adopt"]}
    finding = Finding.objects.create(amount=Decimal("25.80"), **facts)
    small = Finding.objects.create(order_key="x", amount=Decimal(1), **facts)

    call_command("reconcile", "--settle", "refund", "--reason", "twice", "--by", "olga", "--json", str(finding.pk))
    (told,) = json.loads(capsys.readouterr().out)

    asked = Approval.objects.get()
    assert told == {"id": finding.pk, "settled": False, "approval": asked.pk, "state": "pending"}
    assert (asked.verb, asked.subject, asked.stake) == ("settle", str(finding.pk), [["25.800", "EUR"]])
    with pytest.raises(AwaitsApproval):
        reconciliation.settle(finding.pk, "adopt", by=olga, reason="it is ours")
    with pytest.raises(SupervisionError, match="cannot be reached"):  # the small one goes to the service
        reconciliation.settle(small.pk, "refund", by=olga, reason="twice")


@pytest.mark.parametrize(
    ("limits", "asked"), [({"": "20"}, True), ({"": "25.80"}, False), ({"EUR": "30"}, False), ({"JPY": "9000"}, True), ({}, False)]
)
def test_the_limit_is_that_of_the_currency(limits: dict[str, str], asked: bool, olga: User, tuned: Any):
    order = _failed()
    tuned(APPROVAL_ABOVE=limits)

    try:
        operator_verbs.skip(order.public_id, by=olga, reason="r")
    except AwaitsApproval:
        assert asked
    else:
        assert not asked
