"""The money of a return or refund of an order that was paid by bank transfer: an operator sends it, and records the payout.

The step waits until the payout is recorded (`orders.payments.told`): the signal `money-returned` ({"amount", "currency",
"reference"} of the transfer that the operator made at the bank) or a result by hand writes it. An attempt only looks whether it is
there. So the shop counts a payout once, also after a correction, a cancel or another attempt.

A return owes what its goods are worth, or less if less is left (`orders.payments.transfers`): its result says how much (`short`).
"""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

from django.utils.translation import gettext as _

from orders.agents.payment_transfer import SERVICE
from orders.payments import told, transfers
from orders.payments.codes import BANK_TRANSFER
from orders.payments.transfers import Payout
from orders.queries import order_view
from orders.returns import codes
from supervision import EffectOutcome, PermanentFailure, StepRequest
from supervision.errors import Waits
from supervision.postgres import db

PAY_OUT = "pay-out"
NOTHING = Decimal("0.00")
WITHIN = timedelta(days=30)  # a payout that is not recorded by then stops the return or refund in Error


def perform(request: StepRequest, worth: Decimal, *, whole: bool) -> dict[str, Any]:
    """The result once the payout is recorded. Raises Waits until then, and PermanentFailure when the time is over.

    worth: what the goods are worth, or the amount of a refund. whole: of a refund, for which all of it was left when it was accepted.
    """
    order, currency = str(request.payload["order"]), str(request.payload["currency"]).upper()

    def work() -> tuple[Decimal, Payout | None]:
        transfers.lock(order)
        done = transfers.recorded(request.run_key)
        return (done.amount if done else worth if whole else transfers.owed(order_view(order), request.run_key, worth)), done

    owed, made = db.transact(work)
    result = {"method": BANK_TRANSFER, "currency": currency, "refunds": [], "refunded": str(owed), "short": str(max(NOTHING, worth - owed))}
    if made is not None:
        key = f"{request.idempotency_key}:{PAY_OUT}"
        row = request.intend(PAY_OUT, key=key, service=SERVICE, amount=owed, currency=currency, external_id=made.reference)
        row.settle(EffectOutcome.DONE, made.reference)
        return {**result, "reference": made.reference}
    if not owed:
        return result
    facts = {"owed": owed, "currency": currency}
    message = _("%(owed)s %(currency)s have to be paid back by bank transfer") % facts
    left = WITHIN.total_seconds() if request.wait_left is None else request.wait_left
    if request.wait_is_over or left <= 0:
        text = _('Pay %(owed)s %(currency)s back by bank transfer, then complete this step with {"refunded": "%(owed)s"}, or resubmit it.')
        raise PermanentFailure(text % facts, "transfer_to_return")
    raise Waits(codes.PAID_OUT, within=timedelta(seconds=left), message=message)


def compensate(request: StepRequest) -> dict[str, Any]:
    """Nothing, if nothing was paid out. Raises PermanentFailure otherwise: an operator says whether the money came back."""
    by_hand = codes.amount_said((request.performed or {}).get("refunded"))
    made = db.transact(lambda: told.write_down(request.run_key, request.payload, by_hand))
    if made is None:
        return {}
    for row in request.effects():
        if row.operation == PAY_OUT and row.may_exist:
            row.settle(EffectOutcome.DONE, made.reference)
    text = _("%(given)s %(currency)s were paid out at the bank: complete this step only if they came back. If they stay paid, skip it.")
    raise PermanentFailure(text % {"given": made.amount, "currency": request.payload["currency"]}, "refund_made")
