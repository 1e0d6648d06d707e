"""Invoices and credit notes: one each, numbers without gaps however writers end, VAT per line, the same PDF each time."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import timedelta
from decimal import Decimal

import pytest
from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.db import OperationalError, connection, transaction
from django.utils import timezone

from orders import accounting
from orders.documents import issuing, pdf, vat
from orders.documents.tables import Document, DocumentCounter
from orders.models import OrderLine, Product, Return
from orders.queries import order_view
from sasproject import env
from supervision import testing
from supervision.execution import runner
from supervision.models import JournalEntry, Notification
from supervision.outbox import notifications
from supervision.testing import run_of
from supervision.testkit.run import Run
from tests.engine.kit import incidents
from tests.orders.test_returns import LINES, ada, asked, deliver, delivered, goods, shop
from tests.shopping import an_account, place

__all__ = ["ada", "delivered", "shop"]


def issue() -> None:
    while notifications.deliver_due():
        pass


def numbers(series: str = "INV") -> list[int]:
    return sorted(Document.objects.filter(series=series).values_list("number", flat=True))


def invoice(key: str) -> Document:
    return Document.objects.get(order_key=key, kind="invoice")


# ----------------------------------------------------------------------------------------------------- one invoice


def test_a_processed_order_gets_one_invoice_with_vat_by_line(shop, ada):
    Product.objects.filter(sku="TOTE-OCHRE").update(vat_rate="10")
    key = deliver(shop, ada)
    issue()

    one = invoice(key)
    assert (one.number, one.series, str(one.total), str(one.vat)) == (1, "INV", "79.80", "9.56")
    assert [(line["sku"], line["amount"], line["rate"], line["vat"]) for line in one.body["lines"]] == [
        ("MUG-BLUE", "25.80", "22", "4.65"),
        ("TOTE-OCHRE", "54.00", "10", "4.91"),
    ]
    assert one.body["to"]["city"] == "Torino"
    shop.assert_healthy()


def test_a_repeated_notification_issues_nothing_new(shop, delivered):
    issue()
    Notification.objects.filter(kind=accounting.ISSUE_INVOICES).update(delivered_at=None, not_before="2000-01-01T00:00Z")
    issue()

    assert numbers() == [1]
    assert DocumentCounter.objects.get().last == 1
    assert not Notification.objects.filter(kind=accounting.ISSUE_INVOICES, delivered_at=None).exists()


def test_a_notification_of_old_and_new_orders_leaves_no_gap(shop, ada):
    old = deliver(shop, ada)
    issue()
    keys = [old, *(deliver(shop, ada) for _ in range(2))]
    Notification.objects.filter(kind=accounting.ISSUE_INVOICES).delete()
    Notification.objects.create(kind=accounting.ISSUE_INVOICES, payload={"runs": [run_of(key).pk for key in keys]})
    issue()

    assert [invoice(key).number for key in keys] == [1, 2, 3]
    assert DocumentCounter.objects.get().last == 3


def test_orders_that_end_otherwise_get_no_invoice(shop, ada):
    cancelled = place(ada, lines=LINES)
    Run(cancelled).cancel()
    declined = place(ada, lines=LINES, payment_method="pm_card_visa_chargeDeclined")
    shop.run()
    issue()

    assert (Run(cancelled).state, Run(declined).state) == ("Cancelled", "Error")
    assert not Document.objects.exists()


def test_the_orders_of_a_batch_end_with_one_notification(shop, ada, settings, monkeypatch):
    settings.SUPERVISION = {**settings.SUPERVISION, "LINGER_SECONDS": 5}  # mails of a busy machine come one after the other
    monkeypatch.setattr(runner, "_has_to_share", lambda place: False)  # earlier tests may have shown that mails are slow
    for _ in range(5):
        place(ada, lines=LINES)
    shop.run()

    told = [one.payload for one in Notification.objects.filter(kind=accounting.ISSUE_INVOICES)]
    assert len(told) < 5
    assert sum(len(one["runs"]) for one in told) == 5
    issue()
    assert numbers() == [1, 2, 3, 4, 5]
    shop.assert_healthy()


def test_an_order_whose_invoice_cannot_be_issued_keeps_no_other_waiting_and_is_told_of(shop, ada):
    keys = [place(ada, lines=LINES) for _ in range(5)]
    shop.run()
    OrderLine.objects.filter(order__public_id=keys[2]).update(unit_price="99999999.99", quantity=2_000_000)
    runs = [run_of(key).pk for key in keys]
    Notification.objects.filter(kind=accounting.ISSUE_INVOICES).delete()
    Notification.objects.create(kind=accounting.ISSUE_INVOICES, payload={"runs": runs})
    issue()

    assert set(Document.objects.values_list("order_key", flat=True)) == {key for key in keys if key != keys[2]}
    assert numbers() == [1, 2, 3, 4]
    [left] = Notification.objects.filter(delivered_at__isnull=True, kind=accounting.ISSUE_INVOICES)
    assert left.payload == {"runs": [runs[2]]}
    assert "numeric" in left.last_error

    Notification.objects.filter(pk=left.pk).update(created_at=timezone.now() - timedelta(hours=1))
    assert incidents() == [f"delivery_failed:{accounting.ISSUE_INVOICES}"]

    OrderLine.objects.filter(order__public_id=keys[2]).update(unit_price="1.00", quantity=1)
    Notification.objects.filter(pk=left.pk).update(not_before=timezone.now())
    issue()
    assert numbers() == [1, 2, 3, 4, 5]
    assert incidents() == []


# ---------------------------------------------------------------------------------------------------- numbers


def test_writers_at_the_same_moment_leave_no_gap_and_give_no_number_twice(shop, ada):
    views = [order_view(deliver(shop, ada)) for _ in range(6)]

    made = testing.at_once(*[lambda view=view: transaction.atomic()(issuing.invoices)([view]) for view in [*views, *views]])

    assert sum(map(len, made)) == 6, "the second writer of an order finds its invoice"
    assert numbers() == [1, 2, 3, 4, 5, 6]
    assert DocumentCounter.objects.get().last == 6


class Broken(Exception):
    """What a writer in these tests ends with."""


def test_a_writer_that_is_rolled_back_or_dies_takes_its_numbers_back(shop, ada):
    views = [order_view(deliver(shop, ada)) for _ in range(6)]

    def writer(view, end: str) -> None:
        with suppress(Broken, OperationalError), transaction.atomic():
            issuing.invoices([view])
            if end == "raise":
                raise Broken
            if end == "kill":
                with connection.cursor() as cursor:
                    cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    ends = ["raise", "kill", "commit", "raise", "commit", "kill"]
    testing.at_once(*[lambda view=view, end=end: writer(view, end) for view, end in zip(views, ends, strict=True)])
    assert numbers() == [1, 2]

    issue()
    assert numbers() == [1, 2, 3, 4, 5, 6]
    shop.assert_healthy()


def test_each_year_begins_with_one(shop, delivered):
    DocumentCounter.objects.create(series="INV", year=2020, last=41)
    issue()

    assert invoice(delivered).number == 1
    assert dict(DocumentCounter.objects.values_list("year", "last")) == {2020: 41, invoice(delivered).year: 1}
    assert invoice(delivered).name == f"INV-{invoice(delivered).issued_at.year}-000001"


# ------------------------------------------------------------------------------------------------------------ VAT


@pytest.mark.parametrize(
    ("amount", "currency", "rate", "expected"),
    [
        *[("122.00", "EUR", "22", "22.00"), ("12.90", "EUR", "22", "2.33"), ("0.01", "EUR", "22", "0.00"), ("25.80", "EUR", "0", "0.00")],
        *[("10.50", "EUR", "5", "0.50"), ("1000", "JPY", "10", "91.00"), ("99", "JPY", "10", "9.00"), ("12.90", "KWD", "22", "2.33")],
        *[("1000", "RSD", "20", "166.67"), ("12.50", "ALL", "20", "2.08")],
        ("12.50", "JPY", "20", "2.08"),  # a price that is not whole has no whole VAT either
    ],
)
def test_vat_is_included_and_rounded_half_up(amount, currency, rate, expected):
    assert str(vat.included(Decimal(amount), Decimal(rate), vat.unit_of(currency))) == expected


@pytest.mark.parametrize("parts", [[1] * 7, [3, 4], [2, 2, 3]])
def test_credit_notes_of_a_line_have_together_the_vat_of_the_invoice(parts):
    whole = vat.invoice_line("A", "a", 7, Decimal("9.99"), Decimal("22"), vat.CENT)
    notes: list[dict] = []
    for pieces in parts:
        notes.append(vat.credit_line("A", "a", pieces, Decimal("9.99"), [whole], notes, vat.CENT))

    assert sum(Decimal(one["vat"]) for one in notes) == Decimal(whole["vat"])
    assert sum(Decimal(one["amount"]) for one in notes) == Decimal(whole["amount"])


@pytest.mark.parametrize("wrong", ["x", "-1", "100", "nan", "inf"])
def test_a_rate_that_is_none_stops_the_start_by_its_name(monkeypatch, wrong):
    monkeypatch.setenv("VAT_RATE", wrong)

    with pytest.raises(ImproperlyConfigured, match="VAT_RATE"):
        env.env_percent("VAT_RATE", "22")


# --------------------------------------------------------------------------------------------------- credit notes


def test_a_return_gets_a_credit_note_that_names_its_invoice(shop, delivered):
    issue()
    back = asked(shop, delivered, mugs=2, totes=1)
    goods(shop, back, ("MUG-BLUE", 1, 1), ("TOTE-OCHRE", 1))
    issue()

    note = Document.objects.get(kind="credit_note")
    assert (note.name[:4], note.number, str(note.total), note.cause) == ("CRN-", 1, "30.90", back)
    assert note.body["invoice"] == invoice(delivered).name
    assert note.body["return_number"] == Return.objects.get().number
    shop.assert_healthy()


def test_the_credit_notes_of_a_whole_order_take_back_its_whole_vat(shop, delivered):
    for pieces, line in (({"mugs": 1}, ("MUG-BLUE", 1)), ({"mugs": 1}, ("MUG-BLUE", 1)), ({"totes": 3}, ("TOTE-OCHRE", 3))):
        goods(shop, asked(shop, delivered, **pieces), line)
    issue()

    notes = Document.objects.filter(kind="credit_note")
    assert sum(one.total for one in notes) == invoice(delivered).total
    assert sum(one.vat for one in notes) == invoice(delivered).vat
    assert numbers("CRN") == [1, 2, 3]


def test_a_return_of_which_nothing_was_accepted_gets_no_credit_note(shop, delivered):
    goods(shop, asked(shop, delivered, mugs=1), ("MUG-BLUE", 0, 1))
    issue()

    assert not Document.objects.filter(kind="credit_note").exists()


def test_an_order_that_is_older_than_invoices_gets_its_invoice_with_the_credit_note(shop, delivered):
    Notification.objects.filter(kind=accounting.ISSUE_INVOICES).delete()
    goods(shop, asked(shop, delivered, mugs=1), ("MUG-BLUE", 1))
    issue()

    assert (numbers("INV"), numbers("CRN")) == ([1], [1])


def test_documents_are_in_the_journal_once_for_each_rate(shop, ada):
    Product.objects.filter(sku="TOTE-OCHRE").update(vat_rate="10")
    key = deliver(shop, ada)
    issue()
    goods(shop, asked(shop, key, mugs=1), ("MUG-BLUE", 1))
    issue()

    rows = [json.loads(one.body) for one in JournalEntry.objects.filter(event_type=accounting.DOCUMENT).order_by("pk")]
    assert [(one["kind"], one["rate"], one["net"], one["vat"], one["gross"]) for one in rows] == [
        ("invoice", "22", "21.15", "4.65", "25.80"),
        ("invoice", "10", "49.09", "4.91", "54.00"),
        ("credit_note", "22", "-10.57", "-2.33", "-12.90"),
    ]


# ------------------------------------------------------------------------------------------------------------ PDF


def test_the_pdf_has_the_same_bytes_each_time(shop, delivered):
    issue()
    Product.objects.update(name="renamed", vat_rate="4")

    first, second = pdf.printed(invoice(delivered)), pdf.printed(invoice(delivered))

    assert first == second
    assert first.startswith(b"%PDF-")


def test_a_long_invoice_in_other_letters_is_printed(shop, delivered):
    issue()
    one = invoice(delivered)
    lines = [dict(one.body["lines"][0], name=f"Κούπα Кружка żółć {number} " * 6) for number in range(100)]
    one.body = {**one.body, "lines": lines, "to": {**one.body["to"], "name": "山田 \U0001f600 Ελένη"}}

    assert pdf.printed(one).startswith(b"%PDF-")


def test_those_who_may_see_the_order_get_its_pdf_and_nobody_else(shop, delivered, ada, client):
    issue()
    path = f"/orders/{delivered}/documents/{invoice(delivered).name}/"
    bob = an_account("bob", "customer")

    assert client.get(path).status_code == 404, "the order has an owner, who has to sign in"
    client.force_login(bob)
    assert client.get(path).status_code == 404
    client.force_login(ada)
    got = client.get(path)
    assert (got.status_code, got.headers["Content-Type"], got.headers["Cache-Control"]) == (200, "application/pdf", "private, no-store")
    assert client.get(f"/orders/{delivered}/documents/INV-2026-999999/").status_code == 404
    client.force_login(an_account("olga", "operator"))
    assert client.get(path).status_code == 200


@pytest.mark.django_db
@pytest.mark.parametrize("wrong", ["-1", "100", "x"])
def test_a_product_takes_no_such_rate(wrong):
    with pytest.raises(ValidationError, match="vat_rate"):
        Product(sku="X", name="x", price="1", vat_rate=wrong).full_clean()
