"""Writes an accepted refund: its row and its submission, in the caller's transaction, which holds the order's row locked."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from orders.later_requests import Asked, submission
from orders.models import Order, Refund
from orders.queries import OrderView
from orders.refunds import codes
from supervision.intake.submission import accept
from supervision.operations.audit_log import log, name_of


def client_of(key: str) -> str:
    """The name under which idempotency keys of this order's refunds are kept."""
    return f"refund:{key}"


def accept_refund(
    order: Order,
    view: OrderView,
    *,
    amount: Decimal,
    reason: str,
    by: Any,
    intent: str | None,
    key: str,
    digest: str,
    replaces: str = "",
) -> Asked:
    """Write it. replaces: the failed refund whose money this one sends again; empty for a new refund."""
    number = f"{view.number}-P{Refund.objects.filter(order_key=view.public_id).count() + 1}"
    payload = {
        "order": view.public_id,
        "number": view.number,
        "refund": number,
        "email": view.email,
        "language": view.language,
        "currency": view.currency,
        "amount": str(amount),
        "intent": intent,
    }
    if replaces:
        payload["replaces"] = replaces
    new = submission(codes.WORKFLOW, payload, client=client_of(view.public_id), key=key, digest=digest)
    accept([new])
    facts = {"amount": amount, "currency": view.currency, "reason": reason, "asked_by": name_of(by), "replaces": replaces}
    Refund.objects.create(public_id=new.public_id, order_key=view.public_id, number=number, **facts)
    what = f"refund of {amount} {view.currency}"
    log(by, order, f"{what} again for {replaces}: {reason}" if replaces else f"{what}: {reason}")
    return Asked(new.public_id)
