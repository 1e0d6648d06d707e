"""What of the money of a bank transfer can still go back.

No bank compares, as the payment service does for a card. So returns and refunds are compared here with what has come: what was paid
out, what refunds under way will pay, and what returns whose goods have come are worth. Refunds come before returns, and of two
returns the one whose goods were looked at first. Who decides what is paid holds the order's row locked (`orders.refunds.asking`,
`orders.agents.payment_payout`): then what is accepted counts what others are owed.
A payout counts once an attempt has taken its signal: a cancel or a correction before that is not guarded yet (ADR 51).
"""

from __future__ import annotations

from decimal import Decimal

from orders.models import Order, PaymentAdjustment
from orders.payments.codes import BANK_TRANSFER, PAYOUT
from orders.payments.state import came_by_transfer
from orders.queries import OrderView, order_view
from supervision.postgres import db
from supervision.workflow import ClosedRun

_GONE = """
WITH done AS (
     SELECT external_id, amount FROM orders_paymentadjustment
      WHERE order_key = %(order)s AND intent = %(transfer)s AND gives_back AND external_id <> %(payout)s || %(besides)s),
looked AS (
     SELECT t.public_id, t.id, coalesce(s.finished_at, 'infinity') AS at,
            (SELECT coalesce(sum(l.accepted * l.unit_price), 0) FROM orders_returnline l WHERE l.of_id = t.id) AS worth
       FROM orders_return t JOIN supervision_run r ON r.key = t.public_id AND r.finished_at IS NULL
       LEFT JOIN supervision_stepstate s ON s.run_id = r.id AND s.direction = 'do' AND s.name = 'await-goods'
      WHERE t.order_key = %(order)s)
SELECT (SELECT coalesce(sum(amount), 0) FROM done)
     + (SELECT coalesce(sum(f.amount), 0) FROM orders_refund f LEFT JOIN supervision_run r ON r.key = f.public_id
         WHERE f.order_key = %(order)s AND f.public_id <> %(besides)s AND r.finished_at IS NULL
           AND NOT EXISTS (SELECT FROM supervision_archivedrun a WHERE a.key = f.public_id)
           AND NOT EXISTS (SELECT FROM done d WHERE d.external_id = %(payout)s || f.public_id))
     + (SELECT coalesce(sum(o.worth), 0) FROM looked o
         WHERE NOT EXISTS (SELECT FROM done d WHERE d.external_id = %(payout)s || o.public_id)
           AND (%(besides)s = '' OR (o.at, o.id) < (SELECT b.at, b.id FROM looked b WHERE b.public_id = %(besides)s)))
"""


def record(order_key: str, back: str, amount: Decimal, currency: str) -> None:
    """Write that this return or refund was paid out, once, beside the refunds of the order: its payment is read there."""
    facts = {"kind": "refund", "intent": BANK_TRANSFER, "order_key": order_key, "amount": amount, "currency": currency.upper()}
    state = {"status": "succeeded", "gives_back": True, "rank": 1}
    PaymentAdjustment.objects.get_or_create(external_id=f"{PAYOUT}{back}", defaults={**facts, **state})


def record_by_hand(run: ClosedRun, refunded: Decimal) -> None:
    """The same for a run that ends, and whose payout an operator may have written as the step's result, without a signal."""
    if refunded > 0 and not run.payload.get("intent"):
        record(run.payload["order"], run.key, refunded, run.payload["currency"])


def left(view: OrderView, *, besides: str = "") -> Decimal:
    """What can still go back of the transfers that have come for this order, without what was sent too much.

    besides: the public id of a return: what is left for it. Empty: what is left for a new refund.
    """
    facts = {"order": view.public_id, "transfer": BANK_TRANSFER, "payout": PAYOUT, "besides": besides}
    rest: Decimal = min(view.payment.paid, view.total) - db.fetch(_GONE, facts)[0][0]
    return max(Decimal("0.00"), rest.quantize(Decimal("0.01")))


def owed(order_key: str, back: str, worth: Decimal) -> Decimal:
    """What a return whose goods are worth this much has to pay out; all of it where the order's money did not come by transfer."""
    view = order_view(order_key)
    return worth if view is None or not came_by_transfer(view.steps) else min(worth, left(view, besides=back))


def owed_now(order_key: str, back: str, worth: Decimal) -> Decimal:
    """The same, while the order's row is locked: a refund that is accepted meanwhile counts, or counts this return."""

    def work() -> Decimal:
        Order.objects.select_for_update(no_key=True).filter(public_id=order_key).first()
        return owed(order_key, back, worth)

    return db.transact(work)
