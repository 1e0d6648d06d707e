"""The amount of a refund, as it was asked for: read from its row, because that is what the operator was allowed to give."""

from __future__ import annotations

from decimal import Decimal

from orders.models import Refund
from orders.refunds import codes
from supervision import PermanentFailure, StepRequest


def is_refund(request: StepRequest) -> bool:
    """Whether this is the run of a refund, and not of a return."""
    return "refund" in request.payload


def amount_of(request: StepRequest) -> Decimal:
    """What this refund gives back. Raises PermanentFailure where it was never asked for."""
    row = Refund.objects.filter(public_id=request.run_key).first()
    if row is None:
        raise PermanentFailure(f"no refund {request.run_key} was asked for", codes.NOT_PAID)
    return row.amount
