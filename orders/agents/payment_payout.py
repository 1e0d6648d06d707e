"""The money of a return or refund of an order that was paid by bank transfer: an operator sends it, and records the payout.

The step waits for the signal `money-returned`: {"amount", "currency", "reference"} of the transfer that the operator made at the bank.
What cannot be read, or is another amount or currency than is owed, does not count: the step waits on. The payout is written
into the ledger under its reference. All attempts of the step write the same row, so it is recorded once.

A return owes what its goods are worth, or less if less is left (`orders.payments.transfers`): its result says how much (`short`).
"""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

from django.utils.translation import gettext as _

from orders.agents.payment_transfer import SERVICE, Unreadable, read
from orders.payments import transfers
from orders.payments.codes import BANK_TRANSFER
from orders.returns import codes
from supervision import EffectOutcome, PermanentFailure, StepRequest
from supervision.errors import Waits

PAY_OUT = "pay-out"
WITHIN = timedelta(days=30)  # a payout that is not recorded by then stops the return or refund in Error


def perform(request: StepRequest, worth: Decimal, *, whole: bool) -> dict[str, Any]:
    """The result once the payout is recorded. Raises Waits until then, and PermanentFailure when the time is over.

    worth: what the goods are worth, or the amount of a refund. whole: of a refund, for which all of it was left when it was accepted.
    """
    owed = worth if whole else transfers.owed_now(str(request.payload["order"]), request.run_key, worth)
    short = str(worth - owed)
    if not owed:
        return {"method": BANK_TRANSFER, "currency": request.payload["currency"], "refunds": [], "refunded": "0.00", "short": short}
    currency = str(request.payload["currency"]).upper()
    facts = {"owed": owed, "currency": currency}
    said = _("%(owed)s %(currency)s have to be paid back by bank transfer") % facts
    if request.signal is not None:
        try:
            reference = matching(request.signal, owed, currency)
        except Unreadable as problem:
            said = f"{said}; {problem}"
        else:
            key = f"{request.idempotency_key}:{PAY_OUT}"
            row = request.intend(PAY_OUT, key=key, service=SERVICE, amount=owed, currency=currency, external_id=reference)
            row.settle(EffectOutcome.DONE, reference)
            transfers.record(str(request.payload["order"]), request.run_key, owed, currency)
            made = {"method": BANK_TRANSFER, "reference": reference, "currency": currency, "refunds": []}
            return {**made, "refunded": str(owed), "short": short}
    left = WITHIN.total_seconds() if request.wait_left is None else request.wait_left
    if request.wait_is_over or left <= 0:
        text = _('Pay %(owed)s %(currency)s back by bank transfer, then complete this step with {"refunded": "%(owed)s"}, or resubmit it.')
        raise PermanentFailure(text % facts, "transfer_to_return")
    raise Waits(codes.PAID_OUT, within=timedelta(seconds=left), message=said)


def matching(signal: Any, owed: Decimal, currency: str) -> str:
    """The reference of a payout of exactly what is owed. Raises Unreadable, which names the field."""
    reference, amount, given = read(signal)
    if given != currency:
        raise Unreadable(_("currency: expected %(currency)s") % {"currency": currency})
    if amount != owed:
        raise Unreadable(_("amount: expected %(owed)s, which is what has to be paid back") % {"owed": owed})
    return reference
