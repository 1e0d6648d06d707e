"""Finds returns and refunds that have ended, paid money and have no credit note: those that ended before the shop issued credit notes.

Each new one queues its credit note in the transaction that ends it, so this finds none of them once the outbox has delivered.
A cancelled one stays paid, unless the undo of its refund was done: then the money came back, and no credit note is missing.
A refund whose order left for the archive is not found: `unarchive` brings it back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

from orders import accounting
from orders.documents import crediting
from orders.payments.cards import unsaid
from orders.returns.codes import REFUND, amount_said
from supervision.insight import queries as engine
from supervision.models import Notification, StepState
from supervision.postgres import db
from supervision.states import Direction, ProcessState

BATCH = 100  # credit notes in one notification
# Without those of an order of whose invoice nothing is left, and without those that a notification still waits to issue.
_MISSING = """
SELECT t.id, t.order_key, t.public_id, t.number, t.currency
  FROM {table} t
 WHERE t.id > %(after)s AND {paid}
   AND (EXISTS (SELECT FROM supervision_run r WHERE r.key = t.public_id AND r.process_state IN ('Processed', 'Cancelled'))
     OR EXISTS (SELECT FROM supervision_archivedrun a WHERE a.key = t.public_id AND a.process_state IN ('Processed', 'Cancelled')))
   AND NOT EXISTS (SELECT FROM orders_document d
                    WHERE d.order_key = t.order_key AND d.kind = 'credit_note' AND d.return_key = t.public_id)
   AND NOT EXISTS (SELECT FROM orders_document i WHERE i.order_key = t.order_key AND i.kind = 'invoice' AND i.total <=
                    (SELECT sum(d.total) FROM orders_document d WHERE d.order_key = t.order_key AND d.kind = 'credit_note'))
   AND NOT EXISTS (SELECT FROM supervision_notification n WHERE n.kind = %(kind)s AND n.delivered_at IS NULL AND n.payload @> {waits})
 ORDER BY t.id LIMIT %(limit)s
"""
_REFUNDS = _MISSING.format(
    table="orders_refund",
    paid="t.replaces = ''",
    waits="jsonb_build_object('refunds', jsonb_build_array(jsonb_build_object('cause', t.public_id)))",
)
_RETURNS = _MISSING.format(
    table="orders_return",
    paid="EXISTS (SELECT FROM orders_returnline l WHERE l.of_id = t.id AND l.accepted > 0)",
    waits="jsonb_build_object('returns', jsonb_build_array(t.public_id))",
)


@dataclass(frozen=True, kw_only=True)
class Missing:
    """One credit note that is missing. what: "return" or "refund". amount: what it paid back."""

    what: str
    order: str
    key: str
    number: str
    amount: Decimal
    currency: str


def missing() -> Iterator[list[Missing]]:
    """All of them, the oldest first: returns, then refunds. At most 100 at a time."""
    for what, statement, kind in (("return", _RETURNS, accounting.ISSUE_CREDIT_NOTES), ("refund", _REFUNDS, accounting.ISSUE_REFUND_NOTES)):
        after = 0
        while rows := db.run(statement, {"after": after, "kind": kind, "limit": BATCH}):
            after = rows[-1][0]
            found = [
                Missing(what=what, order=order, key=key, number=number, amount=_paid(key), currency=currency)
                for _id, order, key, number, currency in rows
            ]
            yield [one for one in found if one.amount > 0]


def queue(found: list[Missing]) -> None:
    """Queue these credit notes for the outbox, in one transaction."""
    returns = [one.key for one in found if one.what == "return"]
    refunds = [crediting.credited(one.order, one.key, one.number, one.amount) for one in found if one.what == "refund"]
    queued = []
    if returns:
        queued.append(Notification(kind=accounting.ISSUE_CREDIT_NOTES, payload={"returns": returns}))
    if refunds:
        queued.append(Notification(kind=accounting.ISSUE_REFUND_NOTES, payload={"refunds": refunds}))
    db.transact(lambda: Notification.objects.bulk_create(queued))


def _paid(key: str) -> Decimal:
    """What this return or refund has paid back and stays paid, by the result of its step."""
    steps = list(StepState.objects.filter(run__key=key, name=REFUND))
    if not steps and (archived := engine.archived_run(key)) is not None:
        steps = list(archived.steps)
    done = {one.direction: one for one in steps if one.name == REFUND and one.process_state == ProcessState.PROCESSED}
    if Direction.UNDO in done:
        return Decimal("0.00")
    return amount_said((done[Direction.DO].result or {}).get("refunded")) if Direction.DO in done else unsaid(key)
