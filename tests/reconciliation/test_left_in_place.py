"""An order that is cancelled without undo: its charge and its parcel stay by decision, and all books, pages and mails say so."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from django.core import mail

from orders import staying
from orders.gateways import carrier, payment
from orders.models import Order, Product, StockReservation
from orders.progress import standing
from orders.queries import order_view
from supervision import testing
from supervision.audit import registry
from supervision.errors import AwaitsApproval
from supervision.ledger import reconciliation
from supervision.models import Approval, JournalEntry, Run, StepState
from supervision.operations import operator_verbs
from supervision.operations.ending import abandoning
from supervision.outbox.notifications import deliver_due
from tests.engine import kit
from tests.reconciliation.conftest import PAYLOAD, rest
from tests.reconciliation.test_charges import NOWHERE, TOTAL, facts, own_charge

pytestmark = pytest.mark.usefixtures("budget")


def abandon(order: str, **options) -> str:
    return abandoning.abandon(order, by="olga", reason="the customer keeps it", **options)


def undo_states(order: str) -> dict[str, str]:
    rows = StepState.objects.filter(run__key=order, direction="undo")
    return dict(rows.values_list("name", "process_state"))


def caution(order: str) -> str:
    row = Order.objects.get(public_id=order)
    return staying.in_words(row, row.run, order_view(order).steps)


def the_mail() -> str:
    assert deliver_due() == 1
    return mail.outbox[-1].body


def told(event: str) -> list[dict]:
    return [json.loads(entry.body) for entry in JournalEntry.objects.filter(event_type=event)]


def healthy() -> bool:
    broken = list(registry.violations())
    assert broken == [], broken
    return True


@pytest.fixture
def charged(buy) -> str:
    """In Error at the booking, after the charge."""
    return buy("Error", shipping_address=NOWHERE)


def test_a_charge_stays_and_the_pieces_go_back(charged, services, found):
    before = Product.objects.get().available
    assert caution(charged) == "25.80 EUR stay charged: the customer does not get the money back. 2 pieces go back on the shelf."

    assert abandon(charged) == "Compensating"
    rest(charged, "Cancelled")

    assert undo_states(charged) == {"charge-payment": "Skipped", "reserve-stock": "Processed"}
    assert services.charged(charged) == 2580
    assert Product.objects.get().available == before + 2
    assert healthy()


def test_reconciliation_shows_what_was_kept_by_decision_and_can_still_give_it_back(charged, services, found):
    own = own_charge(charged)
    abandon(charged)
    rest(charged, "Cancelled")

    [finding] = found(charged)
    assert facts([finding]) == [("kept_by_decision", own, TOTAL, ("adopt", "refund"))]
    reconciliation.settle(finding.pk, "refund", by="olga", reason="after all")

    assert services.charged(charged) == 0
    assert found(charged) == []


def test_what_was_kept_is_accepted_once_and_for_all(charged, services, found):
    abandon(charged)
    rest(charged, "Cancelled")
    [finding] = found(charged)

    reconciliation.settle(finding.pk, "adopt", by="olga", reason="as agreed")

    assert found(charged) == []
    assert services.charged(charged) == 2580


def test_the_customer_reads_that_the_money_is_kept(charged, settings):
    settings.EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
    mail.outbox = []
    abandon(charged)
    rest(charged, "Cancelled")

    body = the_mail()
    assert "What you have paid was not paid back." in body
    assert "refunded" not in body
    assert "parcel" not in body
    shown = standing(order_view(charged))
    assert shown.money == "Your card was charged €25.80, and it was not paid back. If you have questions, please write to us."
    assert [(stage.name, stage.look) for stage in shown.stages] == [
        ("reserve-stock", "undone"), ("charge-payment", "done"), ("book-shipment", "dropped"), ("notify-customer", "dropped"),
    ]  # fmt: skip
    assert order_view(charged).payment.state == "paid"


def test_the_books_name_the_charge_that_was_kept(charged):
    abandon(charged)
    rest(charged, "Cancelled")

    [event] = told("order.cancelled")
    assert (event["refunded"], event["kept"]) == (False, own_charge(charged))
    assert not told("order.refunded")


def test_an_order_that_is_cancelled_as_always_keeps_nothing(charged, settings):
    settings.EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
    mail.outbox = []
    operator_verbs.cancel(charged, by="olga", reason="r")
    rest(charged, "Cancelled")

    [event] = told("order.cancelled")
    assert (event["refunded"], event["kept"]) == (True, None)
    assert "Nothing will be sent, and anything you had paid is refunded." in the_mail()


def test_a_booked_parcel_keeps_its_pieces(buy, services, found):
    order = buy("Error", payment_method="pm_card_visa", shipping_address=NOWHERE)
    before = Product.objects.get().available
    kit.fetch("UPDATE supervision_stepstate SET effect = 'unknown' WHERE name = 'book-shipment'")
    assert caution(order) == (
        "25.80 EUR stay charged: the customer does not get the money back."
        " It is not known whether a shipment is booked: if it is, it stays booked. 2 pieces stay booked out of stock."
    )

    assert abandon(order) == "Cancelled"

    assert set(undo_states(order).values()) == {"Skipped"}
    assert Product.objects.get().available == before
    assert StockReservation.objects.filter(released_at=None).count() == 1
    assert healthy()


def test_an_order_that_waits_after_its_booking_keeps_its_parcel_by_decision(shop, services, found):
    services.faults("mail", "error_before")
    order = testing.submit("fulfil-order", PAYLOAD)
    testing.run_until_idle()
    assert testing.step(order, "book-shipment").process_state == "Processed"
    assert caution(order) == (
        "25.80 EUR stay charged: the customer does not get the money back. The shipment stays booked. 2 pieces stay booked out of stock."
    )

    assert abandon(order) == "Cancelled"

    parcel = testing.step(order, "book-shipment").result["shipment"]
    [finding] = found(order, service="carrier")
    assert facts([finding])[0][:2] == ("kept_by_decision", parcel)
    assert finding.verbs == ["adopt", "cancel"]
    assert healthy()
    reconciliation.settle(finding.pk, "cancel", by="olga", reason="it came back")
    assert found(order, service="carrier") == []


@pytest.mark.parametrize("service", ["payment", "carrier"])
def test_what_is_older_than_the_list_is_found_once_its_order_has_ended(shop, services, found, monkeypatch, service):
    services.faults("mail", "error_before")
    order = testing.submit("fulfil-order", PAYLOAD)
    testing.run_until_idle()
    kit.fetch("UPDATE supervision_run SET created_at = created_at - interval '9 days' WHERE key = %s", [order])
    for source in (payment, carrier):
        monkeypatch.setattr(source, "listed", lambda since: iter(()))  # both were made before the list begins
    assert found(order, service=service) == []

    abandon(order)

    assert [row.kind for row in found(order, service=service)] == ["kept_by_decision"]


def test_more_money_than_the_limit_needs_a_second_operator(charged, settings):
    settings.SUPERVISION = {**settings.SUPERVISION, "APPROVAL_ABOVE": {"": Decimal("20")}}
    with pytest.raises(AwaitsApproval, match=r"25\.80 EUR are at stake"):
        abandon(charged)

    assert Approval.objects.get().verb == "abandon"
    assert Run.objects.get(key=charged).process_state == "Error"
