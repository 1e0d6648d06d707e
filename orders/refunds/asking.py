"""Asking for a refund. It is accepted when its row and its submission are committed, in one transaction.

The order's row is locked meanwhile. So two operators who ask at the same moment never ask together for more than is left of the
charge. The agent compares again with what the payment service says, before it pays (`orders.agents.payment_part`). The money of a
bank transfer is sent by an operator, and our rows say how much of it is left (`orders.payments.transfers`).
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from django.utils.translation import gettext as _

from orders.agents.payment_transfer import exists
from orders.later_requests import Asked, check_key, digest_of, seen
from orders.models import Order
from orders.payments import transfers
from orders.payments.codes import BY_HAND
from orders.payments.state import came_by_transfer, charge_of
from orders.queries import OrderView, order_view
from orders.refunds import codes
from orders.refunds.accepting import accept_refund, client_of
from orders.refunds.again import pay_again
from orders.services import Conflict, InvalidOrder, OrderRefused
from supervision.approvals import gate
from supervision.approvals.stakes import Operation
from supervision.errors import Refused, UnknownRun
from supervision.operations.acting import demand_reason
from supervision.postgres import db
from supervision.states import RunState

_UNDER_WAY = """
SELECT coalesce(sum(f.amount), 0) FROM orders_refund f LEFT JOIN supervision_run r ON r.key = f.public_id
 WHERE f.order_key = %(order)s AND f.replaces = '' AND r.finished_at IS NULL
   AND NOT EXISTS (SELECT FROM supervision_archivedrun a WHERE a.key = f.public_id)
   AND NOT EXISTS (SELECT FROM orders_paymentadjustment b WHERE b.external_id = %(by_hand)s || f.public_id AND b.gives_back)
"""
# The refunds that no second operator has approved. The outcome of an approved request names its refund.
_UNAPPROVED = """
SELECT coalesce(sum(f.amount), 0) FROM orders_refund f
 WHERE f.order_key = %(order)s AND f.currency = %(currency)s AND f.replaces = ''
   AND NOT EXISTS (SELECT FROM supervision_approval a
                    WHERE a.order_key = f.order_key AND a.verb = %(verb)s AND a.state = 'approved' AND a.outcome = f.public_id)
"""


def refund(key: str, *, amount: Decimal, reason: str, by: Any, idempotency_key: str) -> Asked:
    """Accept that this much of the order's charge is given back. The same key has one effect.

    Raises InvalidOrder for an amount that is no money; Conflict where no money came or less is left of it;
    KeyReused; UnknownRun. Then nothing was written. Raises AwaitsApproval where another operator has to approve the amount.
    """
    demand_reason(reason)
    check_key(idempotency_key)
    if not amount.is_finite() or amount <= 0 or amount.adjusted() > 15 or amount != amount.quantize(Decimal("0.01")):
        raise InvalidOrder({"amount": [_("Expected an amount above 0, with at most two decimals.")]})
    amount = amount.quantize(Decimal("0.01"))
    digest = digest_of(str(amount), gate.reason_asked(reason))

    def work() -> Asked:
        order = Order.objects.select_for_update(no_key=True).filter(public_id=key).first()
        view = order_view(key)
        if order is None or view is None:
            raise UnknownRun(key)
        if before := seen(client_of(key), idempotency_key, digest):
            return before
        if not exists(amount, view.currency):
            raise InvalidOrder({"amount": [_("%(currency)s has no such amount.") % {"currency": view.currency}]})
        if amount > (rest := left(view)):
            text = _("Only %(rest)s of the charge are left.") % {"rest": f"{rest} {view.currency}"}
            raise Conflict(codes.BEYOND, text, {"amount": [text]})
        arguments = {"amount": str(amount), "idempotency_key": idempotency_key}
        stake = {view.currency: amount + _unapproved(view)}
        operation = Operation(verb=codes.VERB, subject=key, order=key, arguments=arguments, stake=stake)
        gate.through(operation, by=by, reason=reason)
        return accept_refund(
            order, view, amount=amount, reason=reason, by=by, intent=charge_of(view.steps), key=idempotency_key, digest=digest
        )  # fmt: skip

    return gate.asking(lambda: db.transact(work))


@gate.executor(codes.VERB)
def _approved(key: str, /, *, by: Any, reason: str, plan_version: str | None, **arguments: Any) -> str:
    """Accept a refund that a second operator has approved. Raises Refused where it is not possible any more."""
    try:
        if failed := arguments.get("replaces"):
            return pay_again(key, failed, reason=reason, by=by, idempotency_key=arguments["idempotency_key"]).public_id
        asked = refund(key, amount=Decimal(arguments["amount"]), reason=reason, by=by, idempotency_key=arguments["idempotency_key"])
    except Conflict as problem:
        raise Refused(problem.message, problem.code) from problem
    except OrderRefused as problem:
        raise Refused(str(problem), codes.BEYOND) from problem
    return asked.public_id


def _unapproved(view: OrderView) -> Decimal:
    """What was asked for before without an approval. It counts with the next refund, so small parts do not pass the limit."""
    facts = {"order": view.public_id, "currency": view.currency, "verb": codes.VERB}
    before: Decimal = db.fetch(_UNAPPROVED, facts)[0][0]
    return before


def left(view: OrderView) -> Decimal:
    """What of the order's money can still be given back. Raises Conflict where the order is not done, or no money came."""
    by_card = charge_of(view.steps) is not None
    if view.process_state != RunState.PROCESSED or not (by_card or came_by_transfer(view.steps)):
        text = _("Only an order that is done and was paid can be refunded. Another one is cancelled instead.")
        raise Conflict(codes.NOT_PAID, text, {"order": [text]})
    if not by_card:
        return transfers.left(view)
    under_way: Decimal = db.fetch(_UNDER_WAY, {"order": view.public_id, "by_hand": BY_HAND})[0][0]
    paying = view.payment
    rest: Decimal = paying.paid - paying.refunded - paying.owed - under_way
    return max(Decimal("0.00"), rest)
