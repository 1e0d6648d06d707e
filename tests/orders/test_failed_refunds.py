"""A refund that fails after it was accepted: heard by a webhook, told once, shown, and paid back again exactly once."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress

import pytest
from django.core.management import call_command
from django.db import connection

from orders.gateways import http
from orders.gateways import payment as gateway
from orders.reconciliation import again as again_module
from orders.returns import answers, shown
from supervision import testing
from supervision.errors import ChangedMeanwhile
from supervision.incidents import lifecycle
from supervision.ledger import reconciliation
from supervision.ledger.reconciliation import CannotSettle
from supervision.models import Effect, Finding, Incident, Notification
from supervision.operations import operator_verbs
from supervision.outbox import notifications
from supervision.testkit.run import Run
from tests.orders.test_payment_hook import hear
from tests.orders.test_refund_parts import findings, refunds_made
from tests.orders.test_returns import ada, asked, delivered, goods, paying, shop
from tests.shopping import place

__all__ = ["ada", "delivered", "shop"]
UPDATED = "charge.refund.updated"


@pytest.fixture
def returned(shop, delivered) -> str:
    """A return of one mug (12.90 EUR) that is done."""
    back = asked(shop, delivered, mugs=1)
    goods(shop, back, ("MUG-BLUE", 1))
    return back


def fails(services, order: str, name: str = "evt_failed") -> str:
    refund = standing(charged(services, order))
    services.fail_refund(refund)
    heard(services, order, name)
    return refund


def charged(services, order: str) -> str:
    """The payment of this order, which may be archived."""
    return str(services.ledger("payment", order)[0]["intent"])


def standing(intent: str) -> str:
    """The refund of this payment that has not failed so far."""
    with http.budget(time.monotonic() + 20):
        [refund] = [one.id for one in gateway.refunds_of(intent) if one.gives_back]
    return refund


def heard(services, order: str, name: str) -> None:
    hear(UPDATED, charged(services, order), name)
    notifications.deliver_due()


def incidents() -> list[Incident]:
    lifecycle.look()
    return list(Incident.objects.filter(kind="reconciliation").order_by("pk"))


def told() -> int:
    return Notification.objects.filter(kind="incident").count()


def open_finding() -> Finding:
    [finding] = reconciliation.findings("payment")
    return finding


def again(finding: Finding) -> str:
    return reconciliation.settle(finding.pk, "refund", by="olga", reason="the card was closed")


def test_it_is_told_once_and_shown(shop, ada, delivered, returned, services, client, capsys):
    refund = fails(services, delivered)
    for number in range(3):
        heard(services, delivered, f"evt_{number}")  # the same news again, and older news

    [incident] = incidents()
    assert (incident.code, incident.severity, incident.orders) == ("refund_failed", "critical", 1)
    assert "12.90 EUR" in incident.title
    assert delivered in incident.title
    incidents()
    assert told() == 1
    finding = open_finding()
    assert (finding.external_id, finding.run_id, finding.verbs) == (refund, testing.run_of(delivered).pk, ["refund", "adopt"])
    assert lifecycle.runs_of("reconciliation", incident.cause) == [finding.run_id]
    assert paying(delivered) == {"state": "paid", "action_url": None, "paid": "79.80", "refunded": "0.00"}
    view = answers.return_view(returned)
    assert view is not None
    assert (str(view.refunded), str(view.owed)) == ("0.00", "12.90")
    assert "did not arrive" in shown.card(view).note
    client.force_login(ada)
    assert "did not arrive" in client.get(f"/orders/{delivered}/").text
    call_command("order", delivered)
    assert "12.90 failed to arrive" in capsys.readouterr().out


def test_it_is_paid_back_again_and_everything_agrees(shop, delivered, returned, services, capsys):
    fails(services, delivered)
    incidents()
    finding = open_finding()

    assert "given back again" in again(finding)

    assert [incident.closed_at is None for incident in incidents()] == [False]
    assert services.charged(delivered) == 7980 - 1290
    assert paying(delivered)["refunded"] == "12.90"
    view = answers.return_view(returned)
    assert view is not None
    assert (str(view.refunded), str(view.owed)) == ("12.90", "0.00")
    rows = Effect.objects.filter(run__key=returned, service="payment").order_by("pk").values_list("outcome", "amount")
    assert sorted((outcome, str(amount)) for outcome, amount in rows) == [("done", "12.900"), ("undone", "12.900")]
    assert findings(capsys, delivered) == ""
    with pytest.raises(ChangedMeanwhile):
        again(finding)
    heard(services, delivered, "evt_late")
    assert not Finding.objects.filter(order_key=delivered, closed_at=None).exists()
    assert refunds_made(services, delivered) == [1290, 1290]
    shop.assert_healthy()


@pytest.mark.parametrize("fault", ["error_before", "error_after_effect", "reset_after_effect"])
def test_a_call_without_a_good_answer_pays_once(shop, delivered, returned, services, fault):
    fails(services, delivered)
    finding = open_finding()
    services.faults("payment", fault)
    with suppress(CannotSettle, reconciliation.CannotCompare):
        again(finding)
    services.clear()
    finding.refresh_from_db()
    if finding.closed_at is None:
        again(finding)

    assert services.charged(delivered) == 7980 - 1290
    assert refunds_made(services, delivered) == [1290, 1290]


def test_a_settlement_that_dies_after_its_call_pays_once(shop, delivered, returned, services):
    """A process of its own is killed between the answer of the payment service and our books."""
    fails(services, delivered)
    finding = open_finding()
    connection.close()
    child = os.fork()
    if child == 0:
        again_module._write = lambda *facts: os.kill(os.getpid(), signal.SIGKILL)
        again(finding)
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert refunds_made(services, delivered) == [1290, 1290]
    with pytest.raises(ChangedMeanwhile):
        again(finding)
    testing.let_pass(300)
    services.forget("payment")

    again(finding)

    finding.refresh_from_db()
    assert finding.closed_at is not None
    rows = Effect.objects.filter(run__key=returned, service="payment")
    assert sorted(rows.values_list("outcome", flat=True)) == ["done", "undone"]
    assert refunds_made(services, delivered) == [1290, 1290]
    assert services.charged(delivered) == 7980 - 1290


def test_a_replacement_that_fails_too_is_told_and_replaced(shop, delivered, returned, services, capsys):
    fails(services, delivered)
    incidents()
    again(open_finding())
    incidents()
    fails(services, delivered, "evt_second")

    assert [incident.closed_at is None for incident in incidents()] == [False, True]
    view = answers.return_view(returned)
    assert view is not None
    assert (str(view.refunded), str(view.owed)) == ("0.00", "12.90")
    again(open_finding())
    assert services.charged(delivered) == 7980 - 1290
    assert findings(capsys, delivered) == ""


def test_two_operators_at_once_pay_once(shop, delivered, returned, services, monkeypatch):
    """Each on a connection of its own; the lease of the settlement is taken away, as if the first one had been frozen in its call."""
    fails(services, delivered)
    finding, real, calling, met, callers = open_finding(), gateway.refund, threading.Event(), threading.Barrier(2, timeout=60), set()

    def together(*args, **kwargs):
        calling.set()
        if threading.get_ident() not in callers:
            callers.add(threading.get_ident())
            met.wait()
        return real(*args, **kwargs)

    def second() -> str:
        assert calling.wait(60)
        Finding.objects.filter(pk=finding.pk).update(settling_until=None)
        return again(finding)

    monkeypatch.setattr(gateway, "refund", together)
    said = testing.at_once(lambda: again(finding), second)

    assert len(callers) == 2, said
    assert services.charged(delivered) == 7980 - 1290, said
    assert refunds_made(services, delivered) == [1290, 1290]
    assert reconciliation.findings("payment") == []


def test_a_refund_that_fails_before_its_return_has_ended_is_looked_at_again(shop, delivered, services):
    back = asked(shop, delivered, mugs=1)
    services.faults("mail", "down")
    goods(shop, back, ("MUG-BLUE", 1))
    fails(services, delivered)
    with pytest.raises(CannotSettle, match="has not ended"):
        again(open_finding())
    services.clear()
    shop.advance("2h")

    Run(back).assert_state("Processed")
    again(open_finding())
    assert services.charged(delivered) == 7980 - 1290


def test_the_refund_of_a_cancelled_order_is_heard_too(shop, ada, services, client):
    key = asked_and_cancelled(shop, ada)
    assert paying(key)["state"] == "refunded"
    intent = str(testing.step(key, "charge-payment").result["intent"])
    services.fail_refund(standing(intent))
    hear(UPDATED, intent, "evt_1")
    notifications.deliver_due()

    [incident] = incidents()
    assert incident.code == "refund_failed"
    assert paying(key) == {"state": "paid", "action_url": None, "paid": "25.80", "refunded": "0.00"}
    client.force_login(ada)
    assert "did not arrive" in client.get(f"/orders/{key}/").text
    again(open_finding())
    assert services.charged(key) == 0
    assert paying(key)["state"] == "refunded"
    assert [one.closed_at is None for one in incidents()] == [False]


def asked_and_cancelled(shop, account) -> str:
    """An order that was charged and then undone."""
    key = place(account)
    shop.kill("book-shipment", at="agent.before_call")
    shop.run()
    operator_verbs.compensate(key, by="olga", reason="changed my mind")
    shop.advance("5m")
    Run(key).assert_state("Cancelled")
    return key


def test_an_archived_return_is_paid_back_again_too(shop, ada, delivered, returned, services, client, capsys):
    testing.let_pass(400 * 86400)
    call_command("archive")
    refund = fails(services, delivered)
    finding = Finding.objects.get(order_key=delivered, closed_at=None)
    assert finding.external_id == refund
    assert paying(delivered)["refunded"] == "0.00"
    view = answers.return_view(returned)
    assert view is not None
    assert str(view.owed) == "12.90"
    [incident] = incidents()
    assert incident.closed_at is None

    again(finding)
    heard(services, delivered, "evt_late")

    assert services.charged(delivered) == 7980 - 1290
    assert paying(delivered)["refunded"] == "12.90"
    capsys.readouterr()
    assert findings(capsys, delivered) == ""
    assert incidents()[0].closed_at is not None


def test_a_look_that_was_overtaken_by_a_settlement_opens_nothing(shop, delivered, returned, services, monkeypatch):
    """The look has seen the failed refund; before it records it, an operator pays it back again."""
    fails(services, delivered)
    finding, real = open_finding(), reconciliation._record

    def overtaken(service, found):
        if found:
            monkeypatch.setattr(reconciliation, "_record", real)
            again(finding)
        return real(service, found)

    monkeypatch.setattr(reconciliation, "_record", overtaken)
    heard(services, delivered, "evt_again")

    assert not Finding.objects.filter(order_key=delivered, closed_at=None).exists()
    assert refunds_made(services, delivered) == [1290, 1290]
