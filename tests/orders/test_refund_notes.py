"""Credit notes of refunds without goods: one for each that paid, shared over the rates of VAT, never more than the invoice."""

from __future__ import annotations

import json
import random
from collections import Counter
from contextlib import suppress
from decimal import Decimal

import pytest
from django.core.management import call_command
from django.db import OperationalError, connection, transaction

from orders import accounting
from orders.documents import crediting, pdf, sharing, vat
from orders.documents.tables import Document, DocumentCounter
from orders.models import Order, Product
from orders.queries import order_view
from orders.refunds.again import pay_again
from orders.refunds.asking import refund
from orders.returns.asking import ask
from supervision import testing
from supervision.ledger import reconciliation
from supervision.models import Finding, JournalEntry, Notification
from supervision.operations import operator_verbs
from supervision.testkit.run import Run
from tests.orders.test_failed_refunds import fails
from tests.orders.test_invoices import Broken, invoice, issue, numbers
from tests.orders.test_payment_hook import refund as refund_at_the_service
from tests.orders.test_refund_parts import intent_of, refunds_made
from tests.orders.test_returns import ada, asked, deliver, goods, shop
from tests.shopping import a_product, place
from tests.support.console import page, person

__all__ = ["ada", "shop"]


@pytest.fixture
def delivered(shop, ada) -> str:
    """An order over 2 mugs at 22 % (25.80) and 3 totes at 10 % (54.00), with its invoice."""
    Product.objects.filter(sku="TOTE-OCHRE").update(vat_rate="10")
    key = deliver(shop, ada)
    issue()
    return key


def given(shop, key: str, amount: str, *, once: str = "one") -> str:
    """The public id of a refund that has paid."""
    made = refund(key, amount=Decimal(amount), reason="a scratch", by="olga", idempotency_key=once).public_id
    shop.run()
    return made


def notes(key: str) -> list[Document]:
    return list(Document.objects.filter(order_key=key, kind="credit_note").order_by("number"))


def lines(note: Document) -> list[tuple[str, str, str]]:
    return [(one["rate"], one["amount"], one["vat"]) for one in note.body["lines"]]


def by_rate(*documents: Document) -> dict[str, tuple[Decimal, Decimal]]:
    return vat.by_rate([line for one in documents for line in one.body["lines"]])


def test_a_refund_gets_one_credit_note_shared_over_the_rates(shop, delivered, ada, client):
    back = given(shop, delivered, "10.00")
    issue()

    [note] = notes(delivered)
    assert (note.name[:4], note.number, note.cause, str(note.total), str(note.vat)) == ("CRN-", 1, back, "10.00", "1.20")
    assert lines(note) == [("22", "3.23", "0.58"), ("10", "6.77", "0.62")]
    assert (note.body["invoice"], note.body["refund_number"]) == (invoice(delivered).name, f"{Order.objects.get().number}-P1")
    rows = [json.loads(one.body) for one in JournalEntry.objects.filter(event_type=accounting.DOCUMENT).order_by("pk")][2:]
    assert [(one["refund"], one["return"], one["rate"], one["gross"]) for one in rows] == [
        (back, None, "22", "-3.23"),
        (back, None, "10", "-6.77"),
    ]
    client.force_login(ada)
    assert note.name in client.get(f"/orders/{delivered}/").text
    printed = client.get(f"/orders/{delivered}/documents/{note.name}/")
    assert (printed.status_code, printed.content) == (200, pdf.printed(note))
    client.force_login(person("otto", "operator"))
    assert note.name in client.get(page(Order.objects.get(public_id=delivered))).text
    shop.assert_healthy()


def test_refunds_of_a_whole_charge_take_back_exactly_its_invoice(shop, delivered):
    for number, amount in enumerate(("0.01", "33.33", "0.05", "46.41")):
        given(shop, delivered, amount, once=str(number))
        issue()

    assert [str(one.total) for one in notes(delivered)] == ["0.01", "33.33", "0.05", "46.41"]
    assert by_rate(*notes(delivered)) == by_rate(invoice(delivered))
    shop.assert_healthy()


def test_the_vat_of_a_currency_without_decimals_is_whole(shop, ada):
    for sku, rate in (("YEN-A", "10"), ("YEN-B", "8")):
        a_product(sku, price="1000", currency="JPY", vat_rate=rate)
    key = place(ada, lines=[{"sku": "YEN-A", "quantity": 3}, {"sku": "YEN-B", "quantity": 1}])
    shop.run()
    issue()
    assert [(line["amount"], line["vat"]) for line in invoice(key).body["lines"]] == [("3000.00", "273.00"), ("1000.00", "74.00")]

    given(shop, key, "333")
    issue()
    goods(shop, ask(order_view(key), [{"sku": "YEN-A", "quantity": 2}], "too small", by="customer").public_id, ("YEN-A", 2))
    issue()

    assert [lines(one) for one in notes(key)] == [[("10", "250.00", "23.00"), ("8", "83.00", "6.00")], [("10", "2000.00", "182.00")]]
    shop.assert_healthy()


def test_a_return_after_a_refund_is_credited_at_its_rate_and_the_rest_at_the_others(shop, delivered, services):
    given(shop, delivered, "40.00")
    goods(shop, asked(shop, delivered, mugs=2), ("MUG-BLUE", 2))
    issue()

    first, second = notes(delivered)
    assert lines(first) == [("22", "12.93", "2.33"), ("10", "27.07", "2.46")]
    assert (str(second.total), lines(second)) == (
        "25.80",
        [("22", "25.80", "4.65"), ("22", "-12.93", "-2.33"), ("10", "12.93", "1.18")],
    )
    goods(shop, asked(shop, delivered, totes=3), ("TOTE-OCHRE", 3))
    issue()

    assert by_rate(*notes(delivered)) == by_rate(invoice(delivered))
    assert sum(one.total for one in notes(delivered)) == Decimal("79.80")
    assert services.charged(delivered) == 0
    shop.assert_healthy()


def test_a_return_of_which_everything_was_credited_gets_no_credit_note_and_takes_no_number(shop, delivered):
    given(shop, delivered, "79.80")
    goods(shop, asked(shop, delivered, mugs=2), ("MUG-BLUE", 2))
    issue()

    assert [str(one.total) for one in notes(delivered)] == ["79.80"]
    assert DocumentCounter.objects.get(series="CRN").last == 1
    shop.assert_healthy()


def test_an_order_that_is_older_than_invoices_gets_its_invoice_with_the_credit_note_of_a_refund(shop, ada):
    key = deliver(shop, ada)
    Notification.objects.filter(kind=accounting.ISSUE_INVOICES).delete()
    given(shop, key, "10.00")
    issue()

    assert (numbers("INV"), numbers("CRN")) == ([1], [1])


# --------------------------------------------------------------------------------------------------- once, without gaps


def test_a_repeated_notification_credits_a_refund_once(shop, delivered):
    given(shop, delivered, "10.00")
    issue()
    Notification.objects.filter(kind=accounting.ISSUE_REFUND_NOTES).update(delivered_at=None, not_before="2000-01-01T00:00Z")
    issue()

    assert len(notes(delivered)) == 1
    assert not Notification.objects.filter(kind=accounting.ISSUE_REFUND_NOTES, delivered_at=None).exists()


def queued(key: str) -> list[dict]:
    told = Notification.objects.filter(kind=accounting.ISSUE_REFUND_NOTES)
    return [one for row in told for one in row.payload["refunds"] if one["order"] == key]


def test_processes_at_the_same_moment_credit_each_refund_once_and_never_more_than_the_invoice(shop, delivered):
    for number in range(4):
        given(shop, delivered, "19.95", once=str(number))
    goods(shop, asked(shop, delivered, mugs=2, totes=3), ("MUG-BLUE", 2), ("TOTE-OCHRE", 3))
    paid = queued(delivered)

    testing.at_once(*[lambda one=one: transaction.atomic()(crediting.refund_notes)([one]) for one in [*paid, *paid]])
    issue()

    assert Counter(one.cause for one in notes(delivered)) == Counter(one["cause"] for one in paid)
    assert by_rate(*notes(delivered)) == by_rate(invoice(delivered))
    assert numbers("CRN") == [1, 2, 3, 4]
    shop.assert_healthy()


def test_a_process_that_dies_between_number_and_document_leaves_neither(shop, delivered):
    for number in range(4):
        given(shop, delivered, "10.00", once=str(number))
    paid = queued(delivered)

    def writer(one: dict, end: str) -> None:
        with suppress(Broken, OperationalError), transaction.atomic():
            crediting.refund_notes([one])
            if end == "raise":
                raise Broken
            if end == "kill":
                with connection.cursor() as cursor:
                    cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    ends = ["raise", "kill", "commit", "kill"]
    testing.at_once(*[lambda one=one, end=end: writer(one, end) for one, end in zip(paid, ends, strict=True)])
    assert numbers("CRN") == [1]

    issue()
    assert numbers("CRN") == [1, 2, 3, 4]
    assert len({one.cause for one in notes(delivered)}) == 4
    shop.assert_healthy()


def test_a_refund_whose_process_dies_is_credited_once(shop, delivered):
    shop.kill("refund-part", at="agent.after_effect")
    given(shop, delivered, "10.00")
    shop.advance("10m")
    issue()

    assert [str(one.total) for one in notes(delivered)] == ["10.00"]
    shop.assert_healthy()


# ------------------------------------------------------------------------------------------- only where money went out


def test_a_refund_that_paid_nothing_gets_none(shop, delivered):
    stopped = refund(delivered, amount=Decimal("5.00"), reason="x", by="olga", idempotency_key="s").public_id
    operator_verbs.cancel(stopped, by="olga", reason="x")
    shop.run()
    issue()

    assert Run(stopped).state == "Cancelled"
    assert notes(delivered) == []


def test_a_skipped_payment_gets_none(shop, delivered, services):
    refund_at_the_service(services, intent_of(delivered), 7980)
    back = given(shop, delivered, "5.00")
    Run(back).assert_state("Error")
    operator_verbs.skip(back, by="olga", reason="nothing is left")
    shop.run()
    issue()

    Run(back).assert_state("Processed")
    assert notes(delivered) == []
    shop.assert_healthy()


def test_a_refund_that_failed_and_is_paid_again_is_credited_once(shop, delivered, services):
    first = given(shop, delivered, "18.00")
    issue()
    failed = fails(services, delivered)
    again = pay_again(delivered, failed, reason="the card was closed", by="olga", idempotency_key="a").public_id
    shop.run()
    issue()

    Run(again).assert_state("Processed")
    assert refunds_made(services, delivered) == [1800, 1800]
    assert [(one.cause, str(one.total)) for one in notes(delivered)] == [(first, "18.00")]
    shop.assert_healthy()


# ------------------------------------------------------------------------------------- money that went back elsewhere


def adopted(key: str) -> None:
    with suppress(SystemExit):
        call_command("reconcile", "--service", "payment")
    for finding in Finding.objects.filter(order_key=key, closed_at=None):
        reconciliation.settle(finding.pk, "adopt", by="olga", reason="it was meant to")


def test_money_given_back_at_the_service_is_credited_once_an_operator_adopts_it(shop, delivered, services):
    refund_at_the_service(services, intent_of(delivered), 1000)
    issue()
    assert notes(delivered) == []

    adopted(delivered)
    issue()
    refund_at_the_service(services, intent_of(delivered), 500)
    adopted(delivered)
    issue()

    assert [str(one.total) for one in notes(delivered)] == ["10.00", "5.00"]
    assert notes(delivered)[1].body["refund_number"] == intent_of(delivered)
    shop.assert_healthy()


# ------------------------------------------------------------------------------------------------------------ the rule


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("unit", ["0.01", "1"])
def test_shares_are_exactly_the_amount_and_never_more_than_the_rest(seed, unit):
    chance, step = random.Random(seed), Decimal(unit)
    rates = chance.sample(["22", "10", "5", "4", "0"], chance.randint(1, 5))
    invoiced = [
        vat.invoice_line(f"{rate}-{one}", "x", chance.randint(1, 9), step * chance.randint(1, 9999), Decimal(rate), step)
        for rate in rates
        for one in range(chance.randint(1, 4))
    ]
    credited: list[vat.Line] = []
    while free := sharing.left(sharing.rests(invoiced, credited)):
        amount = min(free, step * chance.randint(1, max(1, int(free / step))))
        made = sharing.without_goods(amount, sharing.rests(invoiced, credited), step, "back")
        assert sum(Decimal(one["amount"]) for one in made) == amount
        assert all(Decimal(one["amount"]) % step == 0 for one in made)
        credited += made
        assert all(Decimal(one["vat"]) % step == 0 for one in (*invoiced, *made))
        for rate, (taken, tax) in vat.by_rate(credited).items():
            whole, whole_tax = vat.by_rate(invoiced)[rate]
            assert 0 <= taken <= whole
            assert 0 <= tax <= whole_tax

    assert vat.by_rate(credited) == vat.by_rate(invoiced)


def test_equal_fractions_give_the_last_unit_to_the_higher_rate():
    of = {"10": Decimal("1.00"), "22": Decimal("1.00")}

    assert sharing.shares(Decimal("0.01"), of, vat.CENT) == {"22": Decimal("0.01")}
    assert sharing.shares(Decimal("0.03"), of, vat.CENT) == {"22": Decimal("0.02"), "10": Decimal("0.01")}
