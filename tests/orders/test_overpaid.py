"""Orders that are done, and for which more money has come than their payment takes: operators are told once how much to pay back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from decimal import Decimal

import pytest
from django.db import connection, transaction
from django.db.models.functions import Now

from chaos.look import until
from orders import accounting
from orders.documents import issuing
from orders.documents.tables import Document
from orders.payments import codes
from orders.queries import order_view
from orders.refunds.asking import refund
from supervision import PermanentFailure, testing
from supervision.incidents import incident_sql
from supervision.models import Incident, Notification
from supervision.operations import completing, operator_verbs
from supervision.outbox import notifications
from supervision.postgres import db
from supervision.signals.sending import Sent, send_signal
from supervision.store import sleeping
from supervision.testkit.run import Run
from tests.engine.kit import incidents
from tests.orders.test_bank_transfer import paying, shop, waiting
from tests.shopping import ADDRESS, place
from tests.support.simulators import SECOND_FACTOR

__all__ = ["shop", "waiting"]

NOWHERE = {**ADDRESS, "postal_code": "00000"}  # the carrier does not serve it


def told(key: str, reference: str = "T1", amount: str = "25.80", currency: str = "EUR") -> Sent:
    """Tell the order of a transfer."""
    return send_signal(key, codes.TRANSFER, {"amount": amount, "currency": currency, "reference": reference}, sent_by="the bank")


def deliver() -> None:
    while notifications.deliver_due():
        pass


def assert_to_pay_back(key: str, amounts: str) -> None:
    """The order is done, and operators are told once of these amounts, until one of them acknowledges it."""
    Run(key).assert_state("Processed")
    deliver()
    assert [incidents(), incidents()] == [[f"overpaid:{key}"]] * 2
    row = Incident.objects.get(kind="overpaid")
    assert row.title.endswith(f"Pay back: {amounts}.")
    events = [one.payload["event"] for one in Notification.objects.filter(kind="incident") if row.pk in one.payload["incidents"]]
    assert events == ["opened"]

    operator_verbs.acknowledge_incident(row.pk, by="olga", reason="paid back")
    deliver()
    assert incidents() == []


def test_a_transfer_that_comes_while_the_customer_confirms_a_card(shop, services):
    key = place(payment_method=SECOND_FACTOR)
    shop.run()
    told(key)
    services.answer_bank(paying(key)["action_url"])
    send_signal(key, codes.ANSWERED, {}, key="evt_1")
    shop.run()

    assert services.charged(key) == 2580
    assert_to_pay_back(key, "25.80 EUR")


def test_a_transfer_beside_what_the_checkout_has_reserved(shop, services, settings):
    settings.SHOP_CAPTURE = codes.AFTER_BOOKING
    key = place(shipping_address=NOWHERE)
    shop.run()
    told(key)
    Run(key).resubmit(amend={"shipping_address": ADDRESS})
    shop.run()

    assert services.charged(key) == 2580
    assert_to_pay_back(key, "25.80 EUR")


def test_a_part_that_came_before_an_operator_charged_a_card(shop, services, waiting):
    told(waiting, amount="10.00")
    shop.advance("7d")
    Run(waiting).assert_state("Error")
    Run(waiting).resubmit(amend={"payment_method": "pm_card_visa"})
    shop.run()

    assert services.charged(waiting) == 2580
    assert_to_pay_back(waiting, "10.00 EUR")


def test_a_transfer_after_the_charge(shop, services):
    key = place(shipping_address=NOWHERE)
    shop.run()
    assert told(key) == Sent.LATE
    Run(key).resubmit(amend={"shipping_address": ADDRESS})
    shop.run()

    assert_to_pay_back(key, "25.80 EUR")


def test_too_much_and_another_currency_and_a_second_transfer(shop, services, waiting):
    services.faults("carrier", "error_before")
    told(waiting, "T1", "30.00"), told(waiting, "T2", "5", "CHF")
    shop.run()
    assert told(waiting, "T3", "1.50") == Sent.LATE
    services.clear()
    shop.advance("10m")

    assert_to_pay_back(waiting, "5 CHF, 5.70 EUR")


def test_a_transfer_for_an_order_whose_payment_was_skipped(shop):
    key = place(payment_method="pm_card_visa_chargeDeclined")
    shop.run()
    told(key)
    Run(key).skip("it is paid by invoice")
    shop.run()

    assert_to_pay_back(key, "25.80 EUR")


def test_a_transfer_in_place_of_a_reservation_is_the_payment_where_the_step_after_the_booking_was_skipped(shop, settings):
    settings.SHOP_CAPTURE = codes.AFTER_BOOKING
    shop.fake(codes.CAPTURE, raises=PermanentFailure("broken"))
    key = place(payment_method="pm_card_visa_chargeDeclined")
    shop.run()
    Run(key).resubmit(amend={"payment_method": codes.BANK_TRANSFER})
    shop.run()
    told(key, amount="30.00")
    shop.run()
    Run(key).skip("it is paid")
    shop.run()

    assert paying(key)["state"] == "paid"
    assert_to_pay_back(key, "4.20 EUR")


@pytest.mark.parametrize(
    ("result", "amounts"), [({"received": "25.80"}, ""), ({"received": "30.00"}, "4.20 EUR"), ({"method": codes.BANK_TRANSFER}, "")]
)
def test_a_payment_that_an_operator_completed_took_what_came(shop, waiting, result, amounts):
    told(waiting, amount="10.00")
    shop.advance("7d")
    told(waiting, "T2", "15.80")
    completing.complete(waiting, by="olga", reason="by our account", result=result)
    shop.run()

    if amounts:
        assert_to_pay_back(waiting, amounts)
    Run(waiting).assert_state("Processed")
    deliver()
    assert incidents() == []


@pytest.mark.parametrize("method", ["pm_card_visa", codes.BANK_TRANSFER])
def test_an_order_that_was_paid_as_it_should_be_is_told_of_to_no_operator(shop, method):
    key = place(payment_method=method)
    shop.run()
    if method == codes.BANK_TRANSFER:
        told(key)
        shop.run()
    Run(key).assert_state("Processed")
    deliver()

    assert incidents() == []


def test_an_order_whose_invoice_comes_with_its_first_credit_note(shop):
    key = place(shipping_address=NOWHERE)
    shop.run()
    told(key)
    Run(key).resubmit(amend={"shipping_address": ADDRESS})
    shop.run()
    late = Notification.objects.filter(kind=accounting.ISSUE_INVOICES)
    late.update(not_before=Now() + timedelta(hours=1))
    refund(key, amount=Decimal(5), reason="a scratch", by="olga", idempotency_key="one")
    shop.run()
    deliver()
    assert list(Document.objects.order_by("pk").values_list("kind", flat=True)) == ["invoice", "credit_note"]
    late.update(not_before=Now())

    assert_to_pay_back(key, "25.80 EUR")


def test_a_transfer_that_is_told_while_its_order_ends(shop):
    key = place(shipping_address=NOWHERE)
    shop.run()
    Run(key).resubmit(amend={"shipping_address": ADDRESS})
    with beside_a_sender(deliver):
        assert told(key) == Sent.LATE
        assert testing.at_once(shop.run) == [None]

    assert_to_pay_back(key, "25.80 EUR")


@pytest.mark.parametrize("waits_for", ["a sender", "a look for incidents"])
def test_what_one_invoice_waits_for_holds_up_that_of_no_other_order(shop, waits_for):
    one, other = place(shipping_address=NOWHERE), place()
    shop.run()
    Run(one).resubmit(amend={"shipping_address": ADDRESS})

    @transaction.atomic
    def issue(key: str, within: str = "0") -> int:
        db.run(f"SET LOCAL lock_timeout = '{within}'")
        return len(issuing.invoices([order_view(key)]))

    def in_time() -> None:
        assert testing.at_once(lambda: issue(other, "3s")) == [1]

    if waits_for == "a sender":
        with beside_a_sender(lambda: issue(one), in_time):
            told(one)
            assert testing.at_once(shop.run) == [None]
    else:
        told(one)
        shop.run()
        with beside_a_sender(lambda: issue(one), in_time):
            db.fetch(incident_sql.LOCK)

    assert {document.order_key: document.number for document in Document.objects.all()} == {other: 1, one: 2}
    assert incidents() == [f"overpaid:{one}"]


def test_a_credit_note_waits_for_no_sender_to_an_order_that_has_its_invoice(shop):
    key = place()
    shop.run()
    deliver()
    refund(key, amount=Decimal(5), reason="a scratch", by="olga", idempotency_key="one")
    shop.run()

    def issue() -> None:
        db.run("SET lock_timeout = '3s'")
        deliver()

    with transaction.atomic():
        db.fetch(sleeping.AWAKE, {"keys": [key]})
        assert testing.at_once(issue) == [None]

    assert list(Document.objects.order_by("pk").values_list("kind", flat=True)) == ["invoice", "credit_note"]


@contextmanager
def beside_a_sender(work: Callable[[], object], meanwhile: Callable[[], object] = lambda: None) -> Iterator[None]:
    """What the block sends is committed only once `work`, in a thread, has ended or waits for it. Then `meanwhile` is called."""

    def in_a_thread() -> None:
        work()
        connection.close()

    working = threading.Thread(target=in_a_thread, daemon=True)
    with transaction.atomic():
        yield
        working.start()
        until(lambda: not working.is_alive() or waits(), what="the end of the work, or its wait")
        meanwhile()
    working.join(60)
    assert not working.is_alive()


def waits() -> bool:
    [(count,)] = db.run("SELECT count(*) FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))")
    return bool(count)
