"""The amount of a refund, as it was asked for: read from its row, because that is what the operator was allowed to give."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from orders.models import Refund
from orders.payments.codes import PAYOUT
from orders.refunds import codes
from orders.returns.codes import PAID_OUT, REFUND
from supervision import PermanentFailure, StepRequest
from supervision.postgres import db

_TO_PAY_OUT = """
SELECT r.key FROM supervision_run r JOIN supervision_stepstate s ON s.run_id = r.id AND s.direction = 'do' AND s.name = %(step)s
 WHERE r.key = ANY (%(refunds)s::text[]) AND (s.process_state = 'Pending' AND s.awaits = %(signal)s
        OR s.process_state = 'Error' AND r.direction = 'do' AND r.payload->>'intent' IS NULL)
   AND NOT EXISTS (SELECT FROM orders_paymentadjustment a WHERE a.external_id = %(payout)s || r.key)
"""


def to_pay_out(refunds: Iterable[str]) -> set[str]:
    """Which of these refunds wait for an operator to pay them out at the bank, or stopped after 30 days without a payout."""
    facts = {"refunds": list(refunds), "step": REFUND, "signal": PAID_OUT, "payout": PAYOUT}
    return {key for (key,) in db.run(_TO_PAY_OUT, facts)} if facts["refunds"] else set()


def is_refund(request: StepRequest) -> bool:
    """Whether this is the run of a refund, and not of a return."""
    return "refund" in request.payload


def amount_of(request: StepRequest) -> Decimal:
    """What this refund gives back. Raises PermanentFailure where it was never asked for."""
    row = Refund.objects.filter(public_id=request.run_key).first()
    if row is None:
        raise PermanentFailure(f"no refund {request.run_key} was asked for", codes.NOT_PAID)
    return row.amount
