"""What of the money of a bank transfer can still go back, and what has gone back.

No bank compares, as the payment service does for a card. So returns and refunds are compared here with what has come: what was paid
out, what refunds under way will pay, and what returns whose goods have come are worth. Refunds come before returns, and of two
returns the one whose goods were looked at first.

A payout is a row beside the refunds of the order. Who accepts a refund, records a payout or corrects a return locks the order's row,
and compares and writes before the lock is given back. So all of it together is never more than has come for the order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import NamedTuple

from orders.models import Order, PaymentAdjustment
from orders.payments.codes import BANK_TRANSFER, BY_HAND, PAYOUT
from orders.payments.state import came_by_transfer, charge_of, was_taken
from orders.queries import OrderView, order_view
from supervision.postgres import db

_GONE = """
WITH rows AS (
     SELECT external_id, amount, gives_back FROM orders_paymentadjustment
      WHERE order_key = %(order)s AND intent = %(transfer)s AND external_id LIKE %(payout)s || '%%'),
later AS (
     SELECT t.public_id, t.amount, r.finished_at
       FROM (SELECT public_id, amount FROM orders_refund WHERE order_key = %(order)s
             UNION ALL SELECT public_id, NULL FROM orders_return WHERE order_key = %(order)s) t
       LEFT JOIN supervision_run r ON r.key = t.public_id
      WHERE t.public_id <> %(besides)s AND NOT EXISTS (SELECT FROM rows p WHERE p.external_id = %(payout)s || t.public_id)),
looked AS (
     SELECT t.public_id, t.id, coalesce(s.finished_at, 'infinity') AS at,
            (SELECT coalesce(sum(l.accepted * l.unit_price), 0) FROM orders_returnline l WHERE l.of_id = t.id) AS worth
       FROM orders_return t JOIN supervision_run r ON r.key = t.public_id AND r.finished_at IS NULL
       LEFT JOIN supervision_stepstate s ON s.run_id = r.id AND s.direction = 'do' AND s.name = 'await-goods'
      WHERE t.order_key = %(order)s)
SELECT (SELECT coalesce(sum(amount), 0) FROM rows WHERE gives_back AND external_id <> %(payout)s || %(besides)s)
     + (SELECT coalesce(sum(l.amount), 0) FROM later l  -- refunds alone have an amount
         WHERE l.finished_at IS NULL AND NOT EXISTS (SELECT FROM supervision_archivedrun a WHERE a.key = l.public_id))
     + (SELECT coalesce(sum(o.worth), 0) FROM looked o JOIN later l ON l.public_id = o.public_id
         WHERE %(besides)s = '' OR (o.at, o.id) < (SELECT b.at, b.id FROM looked b WHERE b.public_id = %(besides)s))
"""
_ASKED = """
SELECT order_key, currency, amount, true FROM orders_refund WHERE public_id = %(key)s
UNION ALL
SELECT t.order_key, t.currency, coalesce(sum(l.accepted * l.unit_price), 0), false
  FROM orders_return t LEFT JOIN orders_returnline l ON l.of_id = t.id WHERE t.public_id = %(key)s GROUP BY t.id
"""
# The name of the row is given free, because the same return or refund may be paid out again.
_CAME_BACK = """
UPDATE orders_paymentadjustment SET gives_back = false, status = 'returned', external_id = 'returned-' || external_id || ':' || id,
       changed_at = now()
 WHERE external_id IN (%(payout)s || %(key)s, %(by_hand)s || %(key)s)
"""
# Runs with a result by hand and no row of it. A completed undo says that it came back. A result of the payment service names refunds.
_UNTOLD = """
SELECT r.key, s.result->>'refunded'
  FROM supervision_run r
  JOIN supervision_stepstate s ON s.run_id = r.id AND s.direction = 'do' AND s.name = 'refund-part'
  LEFT JOIN supervision_stepstate u ON u.run_id = r.id AND u.direction = 'undo' AND u.name = 'refund-part'
 WHERE r.key = ANY (%(keys)s::text[]) AND u.process_state || '' IS DISTINCT FROM 'Processed'
   AND NOT EXISTS (SELECT FROM orders_paymentadjustment a WHERE a.external_id IN (%(payout)s || r.key, %(by_hand)s || r.key))
   AND s.process_state || '' = 'Processed' AND s.result->>'refunded' <> '0.00'
   AND (coalesce(r.payload->>'intent', '') = '' OR coalesce(s.result->'refunds', '[]') = '[]')
"""
_PAID_OUT = "SELECT external_id, amount FROM orders_paymentadjustment WHERE external_id = ANY (%(ids)s::text[]) AND gives_back"


class Payout(NamedTuple):
    """What was paid out for a return or refund. reference: the bank's; empty where an operator wrote the result by hand."""

    amount: Decimal
    reference: str


class Back(NamedTuple):
    """A return or refund. worth: of its accepted goods, or its amount. whole: a refund, which pays all of it or nothing."""

    key: str
    order: str
    currency: str
    worth: Decimal
    whole: bool


def lock(order_key: str) -> None:
    """Lock the order's row until the transaction ends."""
    Order.objects.select_for_update(no_key=True).filter(public_id=order_key).first()


def asked(key: str) -> Back | None:
    """The return or refund of this public id."""
    for order, currency, worth, whole in db.fetch(_ASKED, {"key": key}):
        return Back(key, order, currency.upper(), Decimal(worth).quantize(Decimal("0.01")), whole)
    return None


def recorded(back: str) -> Payout | None:
    """The payout of this return or refund, if one was recorded and the money has not come back."""
    row = PaymentAdjustment.objects.filter(external_id=f"{PAYOUT}{back}").first()
    return None if row is None else Payout(row.amount.quantize(Decimal("0.01")), row.reason)


def paid_out(keys: Sequence[str]) -> dict[str, Decimal]:
    """What was paid out at the bank for these returns and refunds, by public id."""
    rows = db.run(_PAID_OUT, {"ids": [f"{PAYOUT}{key}" for key in keys]}) if keys else []
    return {name.removeprefix(PAYOUT): amount for name, amount in rows}


def record(order_key: str, back: str, amount: Decimal, currency: str, reference: str = "") -> None:
    """Write that this return or refund was paid out, once. The order's payment is read there. The caller has locked the order."""
    facts = {"kind": "refund", "intent": BANK_TRANSFER, "order_key": order_key, "amount": amount, "currency": currency.upper()}
    state = {"status": "succeeded", "gives_back": True, "rank": 1, "reason": reference}
    PaymentAdjustment.objects.get_or_create(external_id=f"{PAYOUT}{back}", defaults={**facts, **state})


def came_back(key: str) -> None:
    """Write that what was paid out for this return or refund, or given back by hand, is here again, if it has such a row."""
    db.fetch(_CAME_BACK, {"key": key, "payout": PAYOUT, "by_hand": BY_HAND})


def returned(back: str) -> int:
    """How many payouts of this return or refund came back."""
    return PaymentAdjustment.objects.filter(external_id__startswith=f"returned-{PAYOUT}{back}:").count()


def untold(keys: Iterable[str]) -> list[tuple[str, str | None]]:
    """Those of these runs that have a result by hand and no row, with what the result says was refunded."""
    found = list(keys)
    return db.fetch(_UNTOLD, {"keys": found, "payout": PAYOUT, "by_hand": BY_HAND}) if found else []


def left(view: OrderView, *, besides: str = "") -> Decimal:
    """What can still go back of the transfers that have come for this order, without what was sent too much.

    besides: the public id of a return: what is left for it. Empty: what is left for a new refund.
    """
    facts = {"order": view.public_id, "transfer": BANK_TRANSFER, "payout": PAYOUT, "besides": besides}
    rest: Decimal = min(view.payment.paid, view.total) - db.fetch(_GONE, facts)[0][0]
    return max(Decimal("0.00"), rest.quantize(Decimal("0.01")))


def owed(view: OrderView | None, back: str, worth: Decimal) -> Decimal:
    """What a return whose goods are worth this much has to pay out.

    Nothing where the order was never paid, because an operator has skipped its payment. All of it where an operator completed the
    payment by hand, and did not say how much came.
    """
    if view is None:
        return worth
    if came_by_transfer(view.steps):
        return min(worth, left(view, besides=back))
    return worth if was_taken(view.steps) else Decimal("0.00")


def owed_at_bank(back: Back) -> Decimal:
    """What it has to pay out; nothing where the order's money came by card."""
    view = order_view(back.order)
    if view is None or charge_of(view.steps) is not None:
        return Decimal("0.00")
    return back.worth if back.whole else owed(view, back.key, back.worth)
