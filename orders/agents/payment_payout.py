"""The money of a return or refund of an order that was paid by bank transfer: an operator sends it, and records the payout.

The step waits for the signal `money-returned`: {"amount", "currency", "reference"} of the transfer that the operator made at the bank.
What cannot be read, or is another amount or currency than is owed, does not count: the step waits on. A payout is written when it
is told (`orders.payments.told`), and here where it was told before it was owed, in the transaction that compares it. Each attempt
begins with what was written, so a payout counts once, whatever is corrected later.

A return owes what its goods are worth, or less if less is left (`orders.payments.transfers`): its result says how much (`short`).
"""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

from django.utils.translation import gettext as _

from orders.agents.payment_transfer import SERVICE, Unreadable
from orders.payments import told, transfers
from orders.payments.codes import BANK_TRANSFER
from orders.payments.transfers import Payout
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
    order, currency, wrong = str(request.payload["order"]), str(request.payload["currency"]).upper(), ""

    def work() -> tuple[Decimal, Payout | None]:
        nonlocal wrong
        transfers.lock(order)
        if done := transfers.recorded(request.run_key):
            return done.amount, done
        owed = worth if whole else transfers.owed(order, request.run_key, worth)
        if owed and request.signal is not None:
            try:
                made = Payout(owed, told.matching(request.signal, owed, currency))
            except Unreadable as problem:
                wrong = f"; {problem}"
            else:
                transfers.record(order, request.run_key, owed, currency, made.reference)
                return owed, made
        return owed, None

    owed, made = db.transact(work)
    if made is not None:
        _settle(request, made, currency)
    if made is not None or not owed:
        said = {"method": BANK_TRANSFER, "currency": currency, "refunds": [], "refunded": str(owed)}
        said["short"] = str(max(NOTHING, worth - owed))
        return said if made is None else {**said, "reference": made.reference}
    facts = {"owed": owed, "currency": currency}
    message = _("%(owed)s %(currency)s have to be paid back by bank transfer") % facts + wrong
    left = WITHIN.total_seconds() if request.wait_left is None else request.wait_left
    if request.wait_is_over or left <= 0:
        text = _('Pay %(owed)s %(currency)s back by bank transfer, then complete this step with {"refunded": "%(owed)s"}, or resubmit it.')
        raise PermanentFailure(text % facts, "transfer_to_return")
    raise Waits(codes.PAID_OUT, within=timedelta(seconds=left), message=message)


def gone_out(request: StepRequest) -> Decimal:
    """What this return or refund has paid out (`told.write_down`): it counts until an operator completes the undo because it came back."""
    by_hand = codes.amount_said((request.performed or {}).get("refunded"))
    made = db.transact(lambda: told.write_down(request.run_key, request.payload, by_hand))
    if made is not None:
        _settle(request, made, str(request.payload["currency"]).upper())
    return Decimal(0) if made is None else made.amount


def _settle(request: StepRequest, made: Payout, currency: str) -> None:
    """Write the payout into the ledger, under the same key in each attempt."""
    key = f"{request.idempotency_key}:{PAY_OUT}"
    known = next((row for row in request.effects() if row.operation == PAY_OUT and row.outcome is not EffectOutcome.UNDONE), None)
    row = known or request.intend(PAY_OUT, key=key, service=SERVICE, amount=made.amount, currency=currency, external_id=made.reference)
    row.settle(EffectOutcome.DONE, made.reference)
