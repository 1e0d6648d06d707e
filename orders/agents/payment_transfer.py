"""A payment by bank transfer: the step waits for the signal `transfer-received`, until the whole total has come.

Each signal tells of one transfer: {"amount", "currency", "reference"}. It is saved in the step's checkpoint under its reference
before the step waits on, so the same reference counts once, however often it is told. Too little waits on for the rest, until
TRANSFER_WITHIN is over. The step ends once it has taken every signal that is here. Too much completes it, and the result says what
has to be paid back. What cannot be read, or is of another currency, does not count and is kept.

Money that has come can be paid back by people alone: an undo that finds some stops in Error and says how much. An operator
completes the undo step by hand once it is paid back. What an operator wrote by hand as the step's result (`received`) has come, too.
So has a transfer that the shop accepted and no step has taken: the order stood in Error, was paid already, or its payment was paused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

from django.conf import settings
from django.utils.translation import gettext as _

from orders.gateways.money import NoSuchAmount, to_minor
from orders.payments import codes
from supervision import AwaitSignal, EffectOutcome, PermanentFailure, StepRequest
from supervision.postgres import db
from supervision.signals import untaken

SERVICE = "bank"
RECEIVE = "receive"
MOST_KEPT = 50  # signals that could not be read
_MOST = Decimal(10) ** 12

# Whether another step tells of the transfers that no step has taken: the undo of a later payment step has told of them, or the run
# goes on from an earlier step, which takes them.
_OF_ANOTHER = """
SELECT r.resume_from IS NOT NULL
       OR EXISTS (SELECT FROM supervision_stepstate mine
                    JOIN supervision_stepstate later ON later.run_id = mine.run_id AND later.direction = 'undo'
                     AND later.name = ANY (%(steps)s::text[]) AND later.position > mine.position
                   WHERE mine.run_id = r.id AND mine.direction = 'undo' AND mine.name = %(step)s)
  FROM supervision_run r WHERE r.id = %(run)s
"""


class Unreadable(Exception):
    """A signal that tells of no transfer. The message names the field."""


def read(signal: Mapping[str, Any]) -> tuple[str, Decimal, str]:
    """The transfer in a signal: reference, amount, currency. Raises Unreadable."""
    reference, currency, given = signal.get("reference"), signal.get("currency"), signal.get("amount")
    if not isinstance(reference, str) or not 0 < len(reference.strip()) <= 140:
        raise Unreadable(_("reference: expected a text of 1 to 140 characters"))
    if not isinstance(currency, str) or len(currency) != 3 or not currency.isalpha():
        raise Unreadable(_("currency: expected three letters"))
    try:
        amount = Decimal(str(given)) if isinstance(given, str | int | float) and not isinstance(given, bool) else Decimal("nan")
    except InvalidOperation:
        amount = Decimal("nan")
    if not amount.is_finite() or not 0 < amount < _MOST or amount != round(amount, 3):
        raise Unreadable(_('amount: expected a positive amount, such as "25.80"'))
    return reference.strip(), amount, currency.upper()


def exists(amount: Decimal, currency: str) -> bool:
    """Whether there is such an amount of money in this currency."""
    try:
        return to_minor(amount, currency) > 0
    except NoSuchAmount:
        return False


def received(noted: Mapping[str, Any], currency: str) -> Decimal:
    """How much has come in this currency, by the step's checkpoint."""
    transfers = (noted.get(codes.TRANSFERS) or {}).values()
    return sum((Decimal(amount) for amount, of in transfers if of == currency), Decimal(0))


def not_taken(order: str, step: str | None = None) -> dict[str, list[str]]:
    """The transfers that the shop accepted for this order and that no step has taken: [amount, currency] by reference. One query.

    step: with the one that this step took in its last wait, of which it may have noted nothing.
    """
    return readable(untaken.payloads(order, codes.TRANSFER, step))


def readable(signals: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """The transfers that these signals tell of: [amount, currency] by reference. What tells of none is left out."""
    found: dict[str, list[str]] = {}
    for signal in signals:
        with suppress(Unreadable):
            reference, amount, currency = read(signal)
            found.setdefault(reference, [str(amount), currency])
    return found


def perform(request: StepRequest) -> dict[str, Any]:
    """The result once the whole total has come. Raises AwaitSignal while it has not, and PermanentFailure when the time is over."""
    total, currency = Decimal(str(request.payload["total"])), str(request.payload["currency"]).upper()
    noted = _noted(request)
    came = received(noted, currency)
    if came >= total and (request.wait_is_over or not request.untaken(codes.TRANSFER)):
        _book(request, total, currency)
        return {
            "method": codes.BANK_TRANSFER,
            "received": str(came),
            "surplus": str(came - total),
            "currency": currency,
            "transfers": noted[codes.TRANSFERS],
        }
    facts = {"came": came, "total": total, "currency": currency}
    if request.wait_is_over:
        code = codes.TRANSFER_INCOMPLETE if came else codes.TRANSFER_MISSING
        public = _("Your transfer has not come in time.")
        raise PermanentFailure(_("%(came)s of %(total)s %(currency)s have come in time") % facts, code, public, for_customer=not came)
    left = settings.TRANSFER_WITHIN if request.wait_left is None else max(0.0, request.wait_left)
    raise AwaitSignal(codes.TRANSFER, within=timedelta(seconds=left), message=_("%(came)s of %(total)s %(currency)s have come") % facts)


def compensate(request: StepRequest) -> dict[str, Any]:
    """Nothing, if no money has come. Raises PermanentFailure, which says how much an operator has to pay back, if some has."""
    transfers = {**_beside(request), **(request.checkpoint_data.get(codes.TRANSFERS) or {})}
    came = [f"{amount} {currency} ({reference})" for reference, (amount, currency) in sorted(transfers.items())]
    if by_hand := _by_hand(request, transfers):
        came.append(_("%(came)s in all, by the step's result") % {"came": by_hand})
    if came:
        said = ", ".join(came)
        text = _("Pay back what has come by bank transfer, then complete this step by hand: %(said)s") % {"said": said}
        raise PermanentFailure(text, "transfer_to_return")
    for one in request.effects():
        if one.service == SERVICE:
            one.settle(EffectOutcome.UNDONE)
    return {"cancelled": [], "refunded": []}


def _beside(request: StepRequest) -> dict[str, list[str]]:
    """The transfers that no step has taken, if this undo step is the one that tells of them."""
    beside = readable(request.untaken(codes.TRANSFER))
    of_another = beside and db.run(_OF_ANOTHER, {"run": request.run_id, "step": request.step, "steps": list(codes.STEPS)})
    return {} if of_another and of_another[0][0] else beside


def _by_hand(request: StepRequest, transfers: Mapping[str, Any]) -> str:
    """What the step's result says has come, if the told transfers are not all of it; empty for nothing more."""
    said, currency = (request.performed or {}).get("received"), str(request.payload["currency"]).upper()
    try:
        amount = Decimal("0" if said is None else str(said))
    except InvalidOperation:
        amount = Decimal("nan")
    # What is no amount counts as money, too: an operator has to look.
    more = not amount.is_finite() or amount > received({codes.TRANSFERS: transfers}, currency)
    return f"{str(said)[:100]} {currency}" if more else ""


def _noted(request: StepRequest) -> Mapping[str, Any]:
    """The checkpoint with the transfer of this attempt's signal, saved."""
    noted = dict(request.checkpoint_data)
    if request.signal is None:
        return noted
    transfers, odd = dict(noted.get(codes.TRANSFERS) or {}), list(noted.get(codes.ODD_TRANSFERS) or [])
    try:
        reference, amount, currency = read(request.signal)
    except Unreadable as problem:
        said = str(problem)
        if said not in odd and len(odd) < MOST_KEPT:
            odd.append(said)
    else:
        transfers.setdefault(reference, [str(amount), currency])
    new = {codes.TRANSFERS: transfers, codes.ODD_TRANSFERS: odd}
    if any(noted.get(name) != value for name, value in new.items()):
        request.checkpoint(**new)
    return {**noted, **new}


def _book(request: StepRequest, total: Decimal, currency: str) -> None:
    """Write into the ledger that the total has come."""
    key = f"{request.idempotency_key}:{RECEIVE}"
    request.intend(RECEIVE, key=key, service=SERVICE, amount=total, currency=currency).settle(EffectOutcome.DONE)
