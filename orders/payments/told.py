"""Who tells the shop of a payout at the bank: an operator's signal or result by hand, or the end of a run that has one of them.

A payout is a row from the moment at which it is told (`orders.payments.transfers`), in the transaction that keeps the signal or the
result, with the order's row locked. So nothing that becomes of the run later changes what counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any

from django.utils.translation import gettext as _

from orders.agents.payment_transfer import Unreadable, read
from orders.payments import transfers
from orders.payments.transfers import Payout
from orders.returns import codes
from supervision.errors import Refused
from supervision.models import Signal
from supervision.states import Direction
from supervision.workflow import ByHand, ClosedRun, KeptSignal

NOTHING = Decimal("0.00")


def matching(signal: Any, owed: Decimal, currency: str) -> str:
    """The reference of the transfer in this signal. Raises Unreadable where it cannot be read, or is not what is owed."""
    reference, amount, given = read(signal)
    if given != currency:
        raise Unreadable(_("currency: expected %(currency)s") % {"currency": currency})
    if amount != owed:
        raise Unreadable(_("amount: expected %(owed)s, which is what has to be paid back") % {"owed": owed})
    return reference


def signalled(signals: Sequence[KeptSignal]) -> None:
    """Record the payouts of these signals that are what is owed. The step compares those that come before anything is owed."""
    found = [(transfers.asked(signal.key), signal.payload) for signal in signals if signal.name == codes.PAID_OUT]
    for back, payload in sorted(((back, payload) for back, payload in found if back), key=lambda one: one[0].order):
        transfers.lock(back.order)
        if transfers.recorded(back.key) or (owed := transfers.owed_at_bank(back)) is None:
            continue
        with suppress(Unreadable):
            transfers.record(back.order, back.key, owed, back.currency, matching(payload, owed, back.currency))


def completed_by_hand(done: ByHand) -> None:
    """Record the payout that an operator wrote as the step's result; or that it came back, where its undo is completed.

    Raises Refused where the result says another amount than can have gone back.
    """
    back = transfers.asked(done.key) if done.step == codes.REFUND else None
    if back is None:
        return
    transfers.lock(back.order)
    if done.direction == Direction.UNDO:
        transfers.came_back(back.key)
        return
    amount, before = _amount(done.result.get("refunded"), back), transfers.recorded(back.key)
    if before and amount not in (before.amount, NOTHING):
        text = _("%(amount)s %(currency)s were recorded as paid out.") % {"amount": before.amount, "currency": back.currency}
        raise Refused(f"refunded: {text}", "invalid_result")
    if amount and not before and not done.payload.get("intent"):
        transfers.record(back.order, back.key, amount, back.currency)


def _amount(said: Any, back: transfers.Back) -> Decimal:
    """What an operator says has gone back. Raises Refused where it is no such amount."""
    try:
        amount = Decimal(0 if said is None else str(said))
    except ArithmeticError:
        amount = Decimal("nan")
    possible = amount.is_finite() and 0 <= amount <= back.worth and amount == round(amount, 2)
    if possible and (not back.whole or amount in (0, back.worth)):
        return round(amount, 2)
    words = _("expected %(amount)s or 0.00") if back.whole else _("expected an amount from 0.00 to %(amount)s")
    raise Refused(f"refunded: {words % {'amount': back.worth}}", "invalid_result")


def ended(runs: Sequence[ClosedRun]) -> None:
    """Record the payouts of these runs that are known from a signal or a result alone, because they were told before this code ran."""
    by_key = {run.key: run for run in runs if not run.payload.get("intent")}
    for key, refunded in transfers.untold(by_key):
        write_down(key, by_key[key].payload, codes.amount_said(refunded))


def write_down(key: str, payload: Mapping[str, Any], by_hand: Decimal = NOTHING) -> Payout | None:
    """The payout of a return or refund that ends or is being undone, as far as the shop was told; None if it was not.

    It was recorded, or is its step's result, or a signal of at most what was asked for. It is a row from now on.
    """
    order, currency = str(payload["order"]), str(payload["currency"]).upper()
    transfers.lock(order)
    if done := transfers.recorded(key):
        return done
    if by_hand > 0:
        transfers.record(order, key, by_hand, currency)
        return Payout(by_hand, "")
    back = transfers.asked(key)
    worth = NOTHING if back is None else back.worth
    for signal in Signal.objects.filter(run_key=key, name=codes.PAID_OUT).order_by("-pk"):
        with suppress(Unreadable):
            reference, amount, given = read(signal.payload)
            if given == currency and amount <= worth and amount == round(amount, 2):
                transfers.record(order, key, amount, currency, reference)
                return Payout(amount, reference)
    return None
