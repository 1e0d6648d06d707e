"""Paying a failed refund again: a run of its own, which replaces the failed refund at the payment service, once.

A refund that failed after it was accepted is an open finding of the kind `refund_failed` (`orders.reconciliation.failed_refunds`).
`pay_again` locks that finding and accepts a run of the workflow `refund-order` for its amount. What else could pay the same
money is kept out: `manage.py reconcile --settle refund` refuses while such a run is under way, and `pay_again` refuses while the
finding is being settled, while a return or refund of the order may still pay by itself, and while an earlier run for it has not ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.utils.translation import gettext as _

from orders.later_requests import Asked, check_key, digest_of, seen
from orders.models import Order, PaymentAdjustment
from orders.payments.state import charge_of
from orders.queries import OrderView, order_view
from orders.refunds import codes
from orders.refunds.accepting import accept_refund, client_of
from orders.services import Conflict
from supervision.approvals import gate
from supervision.approvals.stakes import Operation
from supervision.errors import UnknownRun
from supervision.operations.acting import demand_reason
from supervision.postgres import db

_FAILED = """
SELECT f.external_id, f.amount, f.currency, f.found_at, coalesce(f.settling_until > now(), false)
  FROM supervision_finding f
 WHERE f.order_key = %(order)s AND f.service = 'payment' AND f.kind = 'refund_failed' AND f.closed_at IS NULL
"""
_LOCKED = f"{_FAILED} AND f.external_id = %(refund)s FOR UPDATE"
_UNDER_WAY = """
SELECT f.replaces FROM orders_refund f LEFT JOIN supervision_run r ON r.key = f.public_id
 WHERE f.order_key = %(order)s AND f.replaces = ANY (%(refunds)s::text[]) AND r.finished_at IS NULL
   AND NOT EXISTS (SELECT FROM supervision_archivedrun a WHERE a.key = f.public_id)
"""
# A return or refund that has begun to pay, and has not ended, pays again by itself what has failed.
_MAY_PAY = """
SELECT EXISTS (SELECT FROM (SELECT public_id FROM orders_return WHERE order_key = %(order)s
                            UNION ALL SELECT public_id FROM orders_refund WHERE order_key = %(order)s) t
                JOIN supervision_run r ON r.key = t.public_id AND r.finished_at IS NULL
                JOIN supervision_stepstate s ON s.run_id = r.id AND s.direction = 'do' AND s.name = 'refund-part' AND s.attempt > 0)
"""


@dataclass(frozen=True, kw_only=True)
class Failed:
    """Money that was sent back and has not arrived. refund: its id at the payment service. under_way: whether it is being paid again."""

    refund: str
    amount: Decimal
    currency: str
    found_at: datetime
    under_way: bool


def failed_of(order_key: str) -> list[Failed]:
    """The failed refunds of this order that were not paid again yet, the oldest first. One query if there are none, else two."""
    rows = db.run(f"{_FAILED} ORDER BY f.id", {"order": order_key})
    paying = under_way(order_key, [row[0] for row in rows])
    return [
        Failed(refund=refund, amount=_money(amount), currency=currency, found_at=found_at, under_way=settling or refund in paying)
        for refund, amount, currency, found_at, settling in rows
    ]


def under_way(order_key: str, refunds: list[str]) -> set[str]:
    """Which of these failed refunds a run is to pay again, and has not ended."""
    return {name for (name,) in db.run(_UNDER_WAY, {"order": order_key, "refunds": refunds})} if refunds else set()


def pay_again(key: str, refund: str, *, reason: str, by: Any, idempotency_key: str) -> Asked:
    """Accept that the money of this failed refund is sent again. The same key has one effect.

    Raises Conflict where the order has no such failed refund, or something else may be paying it; InvalidOrder, KeyReused, UnknownRun.
    Then nothing was written. Raises AwaitsApproval where another operator has to approve the amount.
    """
    demand_reason(reason)
    check_key(idempotency_key)
    digest = digest_of("again", refund, gate.reason_asked(reason))

    def work() -> Asked:
        order = Order.objects.select_for_update(no_key=True).filter(public_id=key).first()
        view = order_view(key)
        if order is None or view is None:
            raise UnknownRun(key)
        if before := seen(client_of(key), idempotency_key, digest):
            return before
        amount = _locked(key, refund)
        arguments = {"replaces": refund, "idempotency_key": idempotency_key}
        operation = Operation(verb=codes.VERB, subject=key, order=key, arguments=arguments, stake={view.currency: amount})
        gate.through(operation, by=by, reason=reason)
        facts: dict[str, Any] = {"amount": amount, "intent": _charge(view, refund), "replaces": refund}
        return accept_refund(order, view, reason=reason, by=by, key=idempotency_key, digest=digest, **facts)

    return gate.asking(lambda: db.transact(work))


def _locked(key: str, refund: str) -> Decimal:
    """The amount of this failed refund, whose finding is locked now. Raises Conflict where it is not to be paid again."""
    rows = db.fetch(_LOCKED, {"order": key, "refund": refund})
    if not rows:
        text = _("This order has no failed refund %(id)s that is still owed.") % {"id": refund}
        raise Conflict(codes.NOT_FAILED, text, {"refund": [text]})
    _id, amount, _currency, _found_at, settling = rows[0]
    busy = db.fetch(_UNDER_WAY, {"order": key, "refunds": [refund]}) or db.fetch(_MAY_PAY, {"order": key})[0][0]
    if settling or busy:
        text = _("Something else may be paying this money at the moment: a run that has not ended, or a settlement.")
        raise Conflict(codes.UNDER_WAY, text, {"refund": [text]})
    return _money(amount)


def _charge(view: OrderView, refund: str) -> str | None:
    """The payment of which this refund gave back a part. The finding of a cancelled order names the payment itself."""
    if refund.startswith("pi_"):
        return refund
    told = PaymentAdjustment.objects.filter(external_id=refund).values_list("intent", flat=True).first()
    return told or charge_of(view.steps)


def _money(amount: Decimal) -> Decimal:
    return amount.quantize(Decimal("0.01"))
