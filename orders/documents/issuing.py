"""Issues invoices and credit notes: once each, under numbers without gaps.

The transaction that ends orders or returns queues one notification for all of them (`orders.accounting`, `orders.returns.ending`).
Delivering it issues their documents in one transaction: it locks the counter of the series, leaves out what has its document, and
writes the others with the next numbers. So a process that dies leaves neither a gap nor a document without a number, a repeated
notification changes nothing, and the lock is never held while orders are being finished.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.db import InterfaceError, OperationalError

from orders import accounting
from orders.documents import vat
from orders.documents.tables import CREDIT_NOTE, INVOICE, SERIES, Document, DocumentCounter
from orders.models import Order, Return, ReturnLine
from orders.queries import OrderView, order_view, order_views
from supervision.journal import entries
from supervision.models import Notification
from supervision.outbox.notifications import handler
from supervision.postgres import db
from supervision.states import RunState

log = logging.getLogger(__name__)

# The lock is held until the commit, so the next holder of it sees every document that was issued under it.
_LOCK = """
INSERT INTO orders_documentcounter AS c (series, year) VALUES (%(series)s, extract(year FROM now() AT TIME ZONE 'UTC'))
ON CONFLICT (series, year) DO UPDATE SET last = c.last
RETURNING c.year, c.last, now()
"""
_RATES = "SELECT sku, vat_rate FROM orders_product WHERE sku = ANY (%(skus)s::text[]) AND vat_rate IS NOT NULL"


@handler(accounting.ISSUE_INVOICES)
def issue_invoices(notification: Notification) -> None:
    """Issue the invoices of the orders of these runs."""

    def work(runs: list[int]) -> None:
        orders = Order.objects.prefetch_related("run").filter(run_id__in=runs).order_by("run_id")
        invoices(order_views(list(orders)))

    _together_or_alone(notification, "runs", work)


@handler(accounting.ISSUE_CREDIT_NOTES)
def issue_credit_notes(notification: Notification) -> None:
    """Issue the credit notes of these returns, and the invoice of an order that has none yet: it may be older than invoices are."""

    def work(keys: list[str]) -> None:
        returns = list(Return.objects.filter(public_id__in=keys).order_by("pk"))
        invoices([view for view in map(order_view, sorted({one.order_key for one in returns})) if view is not None])
        credit_notes(returns)

    _together_or_alone(notification, "returns", work)


def _together_or_alone(notification: Notification, name: str, work: Callable[[list[Any]], None]) -> None:
    """Do the work for all that the notification names. If that fails, each gets a notification of its own: one keeps no other waiting."""
    wanted = notification.payload[name]
    try:
        db.transact(lambda: work(wanted))
    except (OperationalError, InterfaceError):
        raise  # the database is away: all of them are tried again
    except Exception:
        if len(wanted) == 1:
            raise
        log.exception("the documents of %d %s cannot be issued together", len(wanted), name)
        Notification.objects.bulk_create(Notification(kind=notification.kind, payload={name: [one]}) for one in wanted)


def invoices(views: Sequence[OrderView]) -> list[Document]:
    """Issue the invoices of those of these Processed orders that have none, in the caller's transaction."""
    skus = sorted({line.sku for view in views for line in view.lines})
    rates = dict(db.run(_RATES, {"skus": skus})) if skus else {}
    usual = settings.VAT_RATE

    def document(view: OrderView) -> Document:
        lines = [vat.invoice_line(line.sku, line.name, line.quantity, line.unit_price, rates.get(line.sku, usual)) for line in view.lines]
        body: dict[str, Any] = {"lines": lines, "order_number": view.number, "ordered_at": view.created_at.isoformat()}
        body |= {"to": view.shipping_address, "language": view.language}
        return _document(INVOICE, view.public_id, "", view.currency, body)

    done = {view.public_id: view for view in views if view.process_state == RunState.PROCESSED}
    return _issue(INVOICE, [(key, "") for key in done], lambda key, _return: document(done[key]))


def credit_notes(returns: Sequence[Return]) -> list[Document]:
    """Issue the credit notes of those of these returns that have none and of which something was accepted, in the caller's transaction."""
    accepted = Counter[str]()
    lines: dict[str, list[ReturnLine]] = {one.public_id: [] for one in returns}
    for line in ReturnLine.objects.filter(of__in=returns, accepted__gt=0).select_related("of").order_by("pk"):
        lines[line.of.public_id].append(line)
        accepted[line.of.public_id] += line.accepted or 0
    rows = {one.public_id: one for one in returns if accepted[one.public_id]}

    def document(order: str, back: str) -> Document:
        earlier = list(Document.objects.filter(order_key=order).order_by("pk"))
        invoice = next((one for one in earlier if one.kind == INVOICE), None)
        if invoice is None:
            raise LookupError(f"order {order} has no invoice that the credit note of {back} could name")
        written = [
            vat.credit_line(
                line.sku,
                line.name,
                line.accepted or 0,
                line.unit_price,
                [one for one in invoice.body["lines"] if one["sku"] == line.sku],
                [one for note in earlier if note.kind == CREDIT_NOTE for one in note.body["lines"] if one["sku"] == line.sku],
            )
            for line in lines[back]
        ]
        same = {name: invoice.body[name] for name in ("order_number", "ordered_at", "to", "language") if name in invoice.body}
        body = {**same, "lines": written, "invoice": invoice.name, "return_number": rows[back].number}
        return _document(CREDIT_NOTE, order, back, invoice.currency, body)

    return _issue(CREDIT_NOTE, [(one.order_key, one.public_id) for one in rows.values()], document)


def _document(kind: str, order: str, back: str, currency: str, body: dict[str, Any]) -> Document:
    body = {**body, "seller": settings.INVOICE_SELLER}
    sums = vat.by_rate(body["lines"])
    return Document(
        kind=kind,
        order_key=order,
        return_key=back,
        currency=currency,
        total=vat.total(body["lines"]),
        vat=sum((tax for _amount, tax in sums.values()), Decimal("0.00")),
        body=body,
    )


def _issue(kind: str, wanted: Sequence[tuple[str, str]], document: Callable[[str, str], Document]) -> list[Document]:
    if not wanted:
        return []
    series = SERIES[kind]
    [[year, last, now]] = db.fetch(_LOCK, {"series": series})
    known = set(Document.objects.filter(kind=kind, order_key__in=[order for order, _ in wanted]).values_list("order_key", "return_key"))
    new: list[Document] = []
    for order, back in wanted:
        if (order, back) not in known:
            one = document(order, back)
            one.series, one.year, one.number, one.issued_at = series, year, last + len(new) + 1, now
            one.save(force_insert=True)  # each by itself, because a credit note counts those before it
            new.append(one)
    if new:
        DocumentCounter.objects.filter(series=series, year=year).update(last=last + len(new))
        entries.append(accounting.KEY, [event for one in new for event in _events(one, now)])
    return new


def _events(document: Document, at: datetime) -> list[entries.Event]:
    """The accounting events of a document: one for each rate. A credit note's amounts are negative."""
    sign = -1 if document.kind == CREDIT_NOTE else 1
    return [
        (
            accounting.DOCUMENT,
            f"{document.name}:{rate}",
            {
                "document": document.name,
                "kind": document.kind,
                "invoice": document.body.get("invoice"),
                "order": document.order_key,
                "return": document.return_key or None,
                "issued_at": at.isoformat(),
                "rate": rate,
                "net": str(sign * (amount - tax)),
                "vat": str(sign * tax),
                "gross": str(sign * amount),
                "currency": document.currency,
            },
        )
        for rate, (amount, tax) in vat.by_rate(document.body["lines"]).items()
    ]


def of_order(order: str) -> list[Document]:
    """The documents of an order, in the order of their issue."""
    return list(Document.objects.filter(order_key=order).order_by("pk"))
