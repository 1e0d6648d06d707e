"""Who tells the shop of a payout at the bank: an operator's signal or result by hand, or the end of a run that has one of them.

A payout is a row from the moment at which it is told (`orders.payments.transfers`), in the transaction that keeps the signal or the
result, with the order's row locked. So a later cancel, correction or skip of the run does not change what the shop counts. A result
by hand tells in the same way of money of a card that an operator gave back (`orders.payments.cards`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from django.utils.translation import gettext as _

from orders.agents.payment_transfer import Unreadable, exists, read
from orders.payments import cards, transfers
from orders.payments.transfers import Payout
from orders.returns import codes
from supervision.errors import Refused
from supervision.states import Direction
from supervision.workflow import ByHand, ClosedRun, KeptSignal

NOTHING = Decimal("0.00")
NO_PAYOUT = "no_payout"
WRONG = "wrong_payout"  # a signal of another payout than is owed, or of none that can be read


def nothing_waits() -> str:
    """Why a payout is refused that is not asked for."""
    return _("Nothing waits here to be paid out by bank transfer.")


def signalled(signals: Sequence[KeptSignal]) -> None:
    """Record the payouts of these signals. Raises Refused where one is not what is owed now: then none of them is kept."""
    found = [(transfers.asked(signal.key), signal) for signal in signals if signal.name == codes.PAID_OUT]
    for back, signal in sorted(((back, signal) for back, signal in found if back), key=lambda one: one[0].order):
        transfers.lock(back.order)
        if signal.late or transfers.recorded(back.key) or not (owed := transfers.owed_at_bank(back)):
            raise Refused(nothing_waits(), NO_PAYOUT)
        try:
            reference = _matching(signal.payload, owed, back.currency)
        except Unreadable as problem:
            raise Refused(str(problem), WRONG) from None
        transfers.record(back.order, back.key, owed, back.currency, reference)


def _matching(payload: Mapping[str, Any], owed: Decimal, currency: str) -> str:
    reference, amount, given = read(payload)
    if given != currency:
        raise Unreadable(_("currency: expected %(currency)s") % {"currency": currency})
    if amount != owed:
        raise Unreadable(_("amount: expected %(owed)s, which is what has to be paid back") % {"owed": owed})
    return reference


def completed_by_hand(done: ByHand) -> None:
    """Record what an operator wrote as the step's result, with its order locked; or that it came back, where its undo is completed.

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
    if done.payload.get("intent"):
        cards.record(back.key, done.payload, amount, done.result)
    elif amount and not before:
        transfers.record(back.order, back.key, amount, back.currency)


def _amount(said: Any, back: transfers.Back) -> Decimal:
    """What an operator says has gone back. Raises Refused where it is no such amount."""
    try:
        amount = Decimal(0 if said is None else str(said))
    except ArithmeticError:
        amount = Decimal("nan")
    possible = amount.is_finite() and 0 <= amount <= back.worth and (not amount or exists(amount, back.currency))
    if possible and (not back.whole or amount in (0, back.worth)):
        return round(amount, 2)
    words = _("expected %(amount)s or 0.00") if back.whole else _("expected an amount from 0.00 to %(amount)s")
    raise Refused(f"refunded: {words % {'amount': back.worth}}", "invalid_result")


def ended(runs: Sequence[ClosedRun]) -> None:
    """Record what a result by hand alone tells: a process with older code kept it, and did not record it."""
    by_key = {run.key: run for run in runs}
    for key, refunded in sorted(transfers.untold(by_key), key=lambda one: str(by_key[one[0]].payload["order"])):
        payload, amount = by_key[key].payload, codes.amount_said(refunded)
        if payload.get("intent"):
            transfers.lock(str(payload["order"]))
            cards.record(key, payload, amount, {})
        else:
            write_down(key, payload, amount)


def write_down(key: str, payload: Mapping[str, Any], by_hand: Decimal) -> Payout | None:
    """The payout of a return or refund that ends or is being undone; None if there is none. by_hand: what its step's result says."""
    transfers.lock(str(payload["order"]))
    if done := transfers.recorded(key):
        return done
    if by_hand <= 0:
        return None
    transfers.record(str(payload["order"]), key, by_hand, str(payload["currency"]))
    return Payout(by_hand, "")
