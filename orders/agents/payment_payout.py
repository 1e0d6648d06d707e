"""The money of a return or refund of an order that was paid by bank transfer: an operator sends it, and records the payout.

The step waits for the signal `money-returned`: {"amount", "currency", "reference"} of the transfer that the operator made at the bank.
What cannot be read, or is another amount or currency than is owed, does not count: the step waits on. The API writes the payout
before it sends the signal; here it is written for the other doors, in the transaction that compares it. Each attempt begins with
what was written, so a payout counts once and for ever, whatever is corrected later.

A return owes what its goods are worth, or less if less is left (`orders.payments.transfers`): its result says how much (`short`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from decimal import Decimal
from typing import Any

from django.utils.translation import gettext as _

from orders.agents.payment_transfer import SERVICE, Unreadable, read
from orders.payments import transfers
from orders.payments.codes import BANK_TRANSFER
from orders.payments.transfers import Payout
from orders.returns import codes
from supervision import EffectOutcome, PermanentFailure, StepRequest
from supervision.errors import Waits
from supervision.models import Signal
from supervision.postgres import db
from supervision.workflow import ClosedRun

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
                made = Payout(owed, matching(request.signal, owed, currency))
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
    """What this return or refund has paid out (`write_down`): it counts until an operator completes the undo because it came back."""
    by_hand = codes.amount_said((request.performed or {}).get("refunded"))
    made = db.transact(lambda: write_down(request.run_key, request.payload, by_hand))
    if made is not None:
        _settle(request, made, str(request.payload["currency"]).upper())
    return Decimal(0) if made is None else made.amount


def write_down(key: str, payload: Mapping[str, Any], by_hand: Decimal = NOTHING) -> Payout | None:
    """The payout of a return or refund that is being undone or was cancelled, as far as the shop was told; None if it was not.

    It was recorded, or an operator wrote it as the result, or sent a signal of at most what its goods are worth, or the refund is. It
    is a row from now on.
    """
    order, currency = str(payload["order"]), str(payload["currency"]).upper()
    transfers.lock(order)
    if done := transfers.recorded(key):
        return done
    if by_hand > 0:
        transfers.record(order, key, by_hand, currency)
        return Payout(by_hand, "")
    for signal in Signal.objects.filter(run_key=key, name=codes.PAID_OUT).order_by("pk"):
        with suppress(Unreadable):
            reference, amount, given = read(signal.payload)
            if given == currency and amount <= transfers.worth(key):
                transfers.record(order, key, amount, currency, reference)
                return Payout(amount, reference)
    return None


def write_down_cancelled(runs: Sequence[ClosedRun]) -> None:
    """The same for runs that were cancelled while they waited: no undo asks about them. And what came back counts no more."""
    transfers.came_back(runs)
    for run in sorted(runs, key=lambda run: str(run.payload["order"])):
        if not run.payload.get("intent") and not transfers.has_row(run.key):
            write_down(run.key, run.payload)


def _settle(request: StepRequest, made: Payout, currency: str) -> None:
    """Write the payout into the ledger, under the same key in each attempt."""
    key = f"{request.idempotency_key}:{PAY_OUT}"
    known = next((row for row in request.effects() if row.operation == PAY_OUT), None)
    row = known or request.intend(PAY_OUT, key=key, service=SERVICE, amount=made.amount, currency=currency, external_id=made.reference)
    row.settle(EffectOutcome.DONE, made.reference)


def matching(signal: Any, owed: Decimal, currency: str) -> str:
    """The reference of a payout of exactly what is owed. Raises Unreadable, which names the field."""
    reference, amount, given = read(signal)
    if given != currency:
        raise Unreadable(_("currency: expected %(currency)s") % {"currency": currency})
    if amount != owed:
        raise Unreadable(_("amount: expected %(owed)s, which is what has to be paid back") % {"owed": owed})
    return reference
