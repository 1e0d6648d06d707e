"""Issues documents once each, under numbers without gaps: invoices here, credit notes in `orders.documents.crediting`.

The transaction that ends orders, returns or refunds queues one notification for all of them (`orders.accounting`,
`orders.returns.ending`, `orders.refunds.ending`).
Delivering it issues their documents in one transaction: it locks the counter of the series, leaves out what has its document, and
writes the others with the next numbers. So a process that dies leaves neither a gap nor a document without a number, a repeated
notification changes nothing, and the lock is never held while orders are being finished.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.db import InterfaceError, OperationalError

from orders import accounting
from orders.documents import vat
from orders.documents.tables import CREDIT_NOTE, INVOICE, SERIES, Document, DocumentCounter
from orders.models import Order
from orders.payments import overpaid
from orders.queries import OrderView, order_views
from supervision.journal import entries
from supervision.models import Notification
from supervision.outbox.notifications import handler
from supervision.postgres import db
from supervision.signals import untaken
from supervision.states import RunState

log = logging.getLogger(__name__)

# The lock is held until the commit, so the next holder of it sees every document that was issued under it.
_LOCK = """
INSERT INTO orders_documentcounter AS c (series, year) VALUES (%(series)s, extract(year FROM now() AT TIME ZONE 'UTC'))
ON CONFLICT (series, year) DO UPDATE SET last = c.last
RETURNING c.year, c.last, now()
"""
_LOCK_INVOICES = """
SELECT FROM orders_document WHERE order_key = ANY (%(orders)s::text[]) AND kind = %(kind)s ORDER BY id FOR NO KEY UPDATE
"""
_RATES = "SELECT sku, vat_rate FROM orders_product WHERE sku = ANY (%(skus)s::text[]) AND vat_rate IS NOT NULL"


@handler(accounting.ISSUE_INVOICES)
def issue_invoices(notification: Notification) -> None:
    """Issue the invoices of the orders of these runs."""

    def work(runs: list[int]) -> None:
        invoices(order_views(list(Order.objects.prefetch_related("run").filter(run_id__in=runs).order_by("run_id"))))

    together_or_alone(notification, "runs", work)


def together_or_alone(notification: Notification, name: str, work: Callable[[list[Any]], None]) -> None:
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
    """Issue the invoices of those of these Processed orders that have none, in the caller's transaction.

    Operators are told of those orders for which too much has come: once, because an order gets one invoice. All that this may
    wait for comes before the counter: a signal that is being sent to one order holds up no other's number.
    """
    skus = sorted({line.sku for view in views for line in view.lines})
    rates = dict(db.run(_RATES, {"skus": skus})) if skus else {}
    usual = settings.VAT_RATE

    def document(view: OrderView) -> Document:
        unit = vat.unit_of(view.currency)
        lines = [
            vat.invoice_line(line.sku, line.name, line.quantity, line.unit_price, rates.get(line.sku, usual), unit) for line in view.lines
        ]
        body: dict[str, Any] = {"lines": lines, "order_number": view.number, "ordered_at": view.created_at.isoformat()}
        body |= {"to": view.shipping_address, "language": view.language}
        return new_document(INVOICE, view.public_id, "", view.currency, body)

    done = {view.public_id: view for view in views if view.process_state == RunState.PROCESSED}
    untaken.wait_for_senders(list(done))
    invoiced = with_invoice(done)
    overpaid.tell([view for key, view in done.items() if key not in invoiced])  # it may wait for a look at incidents
    return issue(INVOICE, [(key, "") for key in done], lambda key, _cause: document(done[key]))


def with_invoice(orders: Collection[str]) -> set[str]:
    """Those of these orders that have their invoice."""
    return set(Document.objects.filter(kind=INVOICE, order_key__in=orders).values_list("order_key", flat=True))


def new_document(kind: str, order: str, cause: str, currency: str, body: dict[str, Any]) -> Document:
    """A document of this order that has no number yet. body: with its `lines`."""
    body = {**body, "seller": settings.INVOICE_SELLER}
    sums = vat.by_rate(body["lines"])
    return Document(
        kind=kind,
        order_key=order,
        cause=cause,
        currency=currency,
        total=vat.total(body["lines"]),
        vat=sum((tax for _amount, tax in sums.values()), Decimal("0.00")),
        body=body,
    )


def issue(kind: str, wanted: Sequence[tuple[str, str]], document: Callable[[str, str], Document | None]) -> list[Document]:
    """Issue what has no document yet under the next numbers, in the caller's transaction. wanted: the order and the cause of each.

    document: makes the one of an order and a cause, after those before it were written; None where nothing is to be issued.
    """
    if not wanted:
        return []
    series = SERIES[kind]
    [[year, last, now]] = db.fetch(_LOCK, {"series": series})
    orders = sorted({order for order, _cause in wanted})
    if kind == CREDIT_NOTE:  # another process may issue one of the same order under another year's counter
        db.fetch(_LOCK_INVOICES, {"orders": orders, "kind": INVOICE})
    known = set(Document.objects.filter(kind=kind, order_key__in=orders).values_list("order_key", "cause"))
    new: list[Document] = []
    for order, cause in wanted:
        if (order, cause) not in known and (one := document(order, cause)) is not None:
            one.series, one.year, one.number, one.issued_at = series, year, last + len(new) + 1, now
            one.save(force_insert=True)  # each by itself, because a credit note counts those before it
            known.add((order, cause))
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
                "return": document.cause if "return_number" in document.body else None,
                "issued_at": at.isoformat(),
                "rate": rate,
                "net": str(sign * (amount - tax)),
                "vat": str(sign * tax),
                "gross": str(sign * amount),
                "currency": document.currency,
                "refund": document.cause if "refund_number" in document.body else None,
            },
        )
        for rate, (amount, tax) in vat.by_rate(document.body["lines"]).items()
    ]


def of_order(order: str) -> list[Document]:
    """The documents of an order, in the order of their issue."""
    return list(Document.objects.filter(order_key=order).order_by("pk"))
