"""What of the money of a bank transfer can still go back, and what has gone back.

No bank compares, as the payment service does for a card. So returns and refunds are compared here with what has come: what was paid
out, what refunds under way will pay, and what returns whose goods have come are worth. Refunds come before returns, and of two
returns the one whose goods were looked at first.

A payout is a row beside the refunds of the order. Who accepts a refund, records a payout or corrects a return locks the order's row,
and compares and writes before the lock is given back. So all of it together is never more than has come for the order.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import NamedTuple

from orders.models import Order, PaymentAdjustment
from orders.payments.codes import BANK_TRANSFER, PAYOUT
from orders.payments.state import came_by_transfer
from orders.queries import OrderView, order_view
from supervision.postgres import db
from supervision.workflow import ClosedRun

# `hand`: a result that an operator wrote, of a run whose end has not written its row yet.
_GONE = """
WITH rows AS (
     SELECT external_id, amount, gives_back FROM orders_paymentadjustment
      WHERE order_key = %(order)s AND intent = %(transfer)s AND external_id LIKE %(payout)s || '%%'),
later AS (
     SELECT t.public_id, t.amount, r.id AS run_id, r.process_state, r.finished_at
       FROM (SELECT public_id, amount FROM orders_refund WHERE order_key = %(order)s
             UNION ALL SELECT public_id, NULL FROM orders_return WHERE order_key = %(order)s) t
       LEFT JOIN supervision_run r ON r.key = t.public_id
      WHERE t.public_id <> %(besides)s AND NOT EXISTS (SELECT FROM rows p WHERE p.external_id = %(payout)s || t.public_id)),
hand AS (
     SELECT (s.result->>'refunded')::numeric AS amount
       FROM later l JOIN supervision_stepstate s ON s.run_id = l.run_id AND s.direction = 'do' AND s.name = 'refund-part'
      WHERE l.process_state = 'Processed' AND s.result->>'refunded' ~ '^[0-9]{1,12}([.][0-9]{1,3})?$'),
looked AS (
     SELECT t.public_id, t.id, coalesce(s.finished_at, 'infinity') AS at,
            (SELECT coalesce(sum(l.accepted * l.unit_price), 0) FROM orders_returnline l WHERE l.of_id = t.id) AS worth
       FROM orders_return t JOIN supervision_run r ON r.key = t.public_id AND r.finished_at IS NULL
       LEFT JOIN supervision_stepstate s ON s.run_id = r.id AND s.direction = 'do' AND s.name = 'await-goods'
      WHERE t.order_key = %(order)s)
SELECT (SELECT coalesce(sum(amount), 0) FROM rows WHERE gives_back AND external_id <> %(payout)s || %(besides)s)
     + (SELECT coalesce(sum(amount), 0) FROM hand)
     + (SELECT coalesce(sum(l.amount), 0) FROM later l  -- refunds alone have an amount
         WHERE l.finished_at IS NULL AND NOT EXISTS (SELECT FROM supervision_archivedrun a WHERE a.key = l.public_id))
     + (SELECT coalesce(sum(o.worth), 0) FROM looked o JOIN later l ON l.public_id = o.public_id
         WHERE %(besides)s = '' OR (o.at, o.id) < (SELECT b.at, b.id FROM looked b WHERE b.public_id = %(besides)s))
"""
_WORTH = """
SELECT (SELECT coalesce(sum(amount), 0) FROM orders_refund WHERE public_id = %(back)s)
     + (SELECT coalesce(sum(l.accepted * l.unit_price), 0) FROM orders_returnline l JOIN orders_return t ON t.id = l.of_id
         WHERE t.public_id = %(back)s)
"""
# The undo of these runs was done by hand: the money came back.
_FETCHED_BACK = """
UPDATE orders_paymentadjustment a SET gives_back = false, status = 'returned', changed_at = now()
  FROM supervision_run r
  JOIN supervision_stepstate s
    ON s.run_id = r.id AND s.direction = 'undo' AND s.name = 'refund-part' AND s.process_state || '' = 'Processed'
 WHERE r.key = ANY (%(keys)s::text[]) AND a.external_id = %(payout)s || r.key
"""


class Payout(NamedTuple):
    """What was paid out for a return or refund. reference: the bank's; empty where an operator wrote the result by hand."""

    amount: Decimal
    reference: str


def lock(order_key: str) -> None:
    """Lock the order's row until the transaction ends."""
    Order.objects.select_for_update(no_key=True).filter(public_id=order_key).first()


def recorded(back: str) -> Payout | None:
    """The payout of this return or refund, if one was recorded and the money has not come back."""
    row = PaymentAdjustment.objects.filter(external_id=f"{PAYOUT}{back}", gives_back=True).first()
    return None if row is None else Payout(row.amount.quantize(Decimal("0.01")), row.reason)


def has_row(back: str) -> bool:
    """Whether a payout of it was ever recorded, also one that came back."""
    return PaymentAdjustment.objects.filter(external_id=f"{PAYOUT}{back}").exists()


def record(order_key: str, back: str, amount: Decimal, currency: str, reference: str = "") -> None:
    """Write that this return or refund was paid out, once. The order's payment is read there. The caller has locked the order."""
    facts = {"kind": "refund", "intent": BANK_TRANSFER, "order_key": order_key, "amount": amount, "currency": currency.upper()}
    state = {"status": "succeeded", "gives_back": True, "rank": 1, "reason": reference}
    PaymentAdjustment.objects.get_or_create(external_id=f"{PAYOUT}{back}", defaults={**facts, **state})


def record_by_hand(run: ClosedRun, refunded: Decimal) -> None:
    """The same for a run that ends, and whose payout an operator may have written as the step's result, without a signal."""
    if refunded > 0 and not run.payload.get("intent"):
        record(run.payload["order"], run.key, refunded, run.payload["currency"])


def came_back(runs: Sequence[ClosedRun]) -> None:
    """Write for cancelled returns and refunds whose undo an operator has completed that the money is here again."""
    db.fetch(_FETCHED_BACK, {"keys": [run.key for run in runs], "payout": PAYOUT})


def left(view: OrderView, *, besides: str = "") -> Decimal:
    """What can still go back of the transfers that have come for this order, without what was sent too much.

    besides: the public id of a return: what is left for it. Empty: what is left for a new refund.
    """
    facts = {"order": view.public_id, "transfer": BANK_TRANSFER, "payout": PAYOUT, "besides": besides}
    rest: Decimal = min(view.payment.paid, view.total) - db.fetch(_GONE, facts)[0][0]
    return max(Decimal("0.00"), rest.quantize(Decimal("0.01")))


def worth(back: str) -> Decimal:
    """The amount of this refund, or what the goods of this return are worth."""
    amount: Decimal = db.fetch(_WORTH, {"back": back})[0][0]
    return amount


def owed(order_key: str, back: str, worth: Decimal) -> Decimal:
    """What a return whose goods are worth this much has to pay out; all of it where the order's money did not come by transfer."""
    view = order_view(order_key)
    return worth if view is None or not came_by_transfer(view.steps) else min(worth, left(view, besides=back))
