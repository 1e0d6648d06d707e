"""Which charges an order ought to have: pure rules on our books and on the present payments.

Processed: one charge of the total, known to the books, no refunds except our own and those of its returns, and no payment that
could still be charged. Cancelled: no money kept, unless an operator has left it, and no payment that could still be charged.
Unknown to the books: no charge at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from django.utils.translation import gettext as _

from orders.agents.payment import PaymentAgent
from orders.gateways.money import NoSuchAmount, from_minor, to_minor
from orders.gateways.payment import Dispute, Intent, Refund
from orders.payments import codes
from orders.reconciliation.books import Book
from supervision.ledger.reconciliation import ADOPT, CANCEL, REFUND, Found
from supervision.states import RunState

SERVICE = "payment"
AGENT = PaymentAgent.name
# In these states the customer or the bank may still complete the charge without us.
UNDER_WAY = frozenset({"requires_action", "requires_capture", "processing"})


@dataclass(frozen=True)
class Charge:
    """One payment with its refunds, and with the disputes that cost or may cost money."""

    intent: Intent
    refunds: tuple[Refund, ...] = ()
    disputes: tuple[Dispute, ...] = ()

    @property
    def given_back(self) -> int:
        """The amount that the customer has got back or will get back, in minor units."""
        return sum(one.amount for one in self.refunds if one.gives_back)

    @property
    def kept(self) -> int:
        """The amount of the customer's money that we still have, in minor units."""
        return self.intent.received - self.given_back


def due(book: Book) -> int | None:
    """The order's total in minor units; None if Stripe has no such amount."""
    try:
        return to_minor(book.total, book.currency)
    except NoSuchAmount:
        return None


def named(book: Book) -> set[str]:
    """The payments that our books name for this order."""
    found = {str(effect["external_id"]) for effect in book.effects_of(SERVICE)}
    for step in book.all_of(AGENT):
        found |= {str((step.get(where) or {}).get("intent") or "") for where in ("result", "checkpoint")}
    return {name for name in found if name.startswith("pi_")}


def agrees(intent: Intent, book: Book, given_back: int) -> bool:
    """Whether a listed payment clearly agrees with the books, so that it needs no closer check."""
    if book.known and not book.ended:
        return True  # its agents still work on it
    if not intent.received:
        return intent.status not in UNDER_WAY
    if book.state == RunState.CANCELLED:
        return given_back >= intent.received
    if book.state == RunState.PROCESSED:
        return (
            not given_back
            and not book.returned
            and named(book) == {intent.id}
            and intent.received == due(book)
            and same_currency(intent, book)
        )
    return False


def by_transfer(book: Book) -> bool:
    """Whether the order was paid by bank transfer, and has no charge."""
    return any(codes.by_transfer(step.get("result") or {}) for step in book.done(AGENT))


def same_currency(intent: Intent, book: Book) -> bool:
    """Whether the charge is in the order's currency."""
    return intent.currency.upper() == book.currency


def judge(book: Book, charges: Sequence[Charge]) -> Iterator[Found]:
    """Every difference of one order. charges: all of its payments that exist."""
    for charge in charges:
        for dispute in charge.disputes:
            detail = _("dispute %(id)s (%(reason)s) is %(status)s") % {"id": dispute.id, "reason": dispute.reason, "status": dispute.status}
            yield _found("dispute", book, charge, dispute.amount, (ADOPT,), detail)
    if not book.known:
        yield from _without_an_order(book, charges)
    elif book.state == RunState.CANCELLED:
        yield from _cancelled(book, charges)
    elif book.state == RunState.PROCESSED:
        yield from _processed(book, charges)


def _without_an_order(book: Book, charges: Sequence[Charge]) -> Iterator[Found]:
    for charge in charges:
        if charge.kept > 0:
            yield _found("orphan_charge", book, charge, charge.kept, (REFUND,), _("our books have no such order"))
        elif charge.intent.status in UNDER_WAY:
            detail = _("our books have no such order, and it can still be charged")
            yield _found("orphan_charge", book, charge, charge.intent.amount, (CANCEL,), detail)


def _cancelled(book: Book, charges: Sequence[Charge]) -> Iterator[Found]:
    for charge in charges:
        failed = [one for one in charge.refunds if not one.gives_back]
        if charge.kept > 0 and failed:
            detail = _("refund %(id)s failed (%(reason)s)") % {"id": failed[0].id, "reason": failed[0].reason or "-"}
            yield _found("refund_failed", book, charge, charge.kept, (REFUND,), detail)
        elif charge.kept > 0 and charge.intent.id in named(book) and book.left(*codes.STEPS):
            detail = _("the order was cancelled without undo, and its charge was kept")
            yield _found("kept_by_decision", book, charge, charge.kept, (ADOPT, REFUND), detail)
        elif charge.kept > 0:
            yield _found("live_after_cancel", book, charge, charge.kept, (REFUND,), _("the order is cancelled and was charged"))
        elif charge.intent.status in UNDER_WAY:
            detail = _("the order is cancelled and can still be charged (%(state)s)") % {"state": charge.intent.status}
            yield _found("live_after_cancel", book, charge, charge.intent.amount, (CANCEL,), detail)


def _processed(book: Book, charges: Sequence[Charge]) -> Iterator[Found]:
    known = named(book)
    paid = [charge for charge in charges if charge.intent.received]
    main = _main(book, paid, known)
    for charge in charges:
        if charge.intent.status in UNDER_WAY and not charge.intent.received:
            detail = _("the order is done and can still be charged (%(state)s)") % {"state": charge.intent.status}
            yield _found("open_payment", book, charge, charge.intent.amount, (CANCEL,), detail)
    for charge in paid:
        if charge is not main and charge.kept > 0:
            yield _found("orphan_charge", book, charge, charge.kept, (REFUND,), _("charged besides the order's own payment"))
    if main is None:
        taken = any(step["name"] in codes.STEPS for step in book.done(AGENT))  # a return's step gives money back
        if taken and due(book) and not by_transfer(book):
            nothing = next(iter(sorted(known)), "")
            detail = _("the order was fulfilled and no charge exists")
            yield Found(
                kind="missing_charge",
                order=book.key,
                external_id=nothing,
                run_id=book.run_id,
                amount=book.total,
                currency=book.currency,
                verbs=(ADOPT,),
                detail=detail,
            )
        return
    if main.intent.id not in known:
        verbs = (ADOPT, REFUND) if main.intent.received == due(book) and same_currency(main.intent, book) else (REFUND,)
        yield _found("orphan_charge", book, main, main.kept, verbs, _("charged for this order, and not in our books"))
        return
    yield from _own(book, main)


def _main(book: Book, paid: Sequence[Charge], known: set[str]) -> Charge | None:
    """The order's own charge. Charges not given back come first, then the step's result, one in the books, one of the right amount."""
    result = {str((step.get("result") or {}).get("intent")) for step in book.done(AGENT)}

    def rank(charge: Charge) -> tuple[bool, bool, bool, bool, str]:
        fits = charge.intent.received == due(book)
        return charge.kept <= 0, charge.intent.id not in result, charge.intent.id not in known, not fits, charge.intent.id

    ranked = sorted(paid, key=rank)
    return next((one for one in ranked if one.kept > 0 or one.intent.id in known), None)


def _own(book: Book, main: Charge) -> Iterator[Found]:
    """The differences of the order's own charge: a wrong amount, or refunds that we did not make."""
    returned = for_returns_of(book, main)
    mine = {one.id for one in main.refunds if one.id in returned or one.of_return in book.paying}
    ours = {str(effect["external_id"]) for effect in book.effects_of(SERVICE)} | mine
    for_returns = sum(one.amount for one in main.refunds if one.gives_back and one.id in mine)
    elsewhere = sum(one.amount for one in main.refunds if one.gives_back and one.id not in ours)
    by_us = main.given_back - elsewhere - for_returns
    if elsewhere:
        detail = _("given back in full") if main.kept <= 0 else _("given back in part")
        yield _found("refunded_elsewhere", book, main, elsewhere, (ADOPT,), detail)
    replaced = {one.replaces for one in main.refunds}
    for one in main.refunds:
        if one.id in returned and not one.gives_back and one.id not in replaced:
            number = {"id": one.id, "number": returned[one.id], "reason": one.reason or "-"}
            detail = _("refund %(id)s of return %(number)s failed (%(reason)s): the customer has not got this money") % number
            yield replace(_found("refund_failed", book, main, one.amount, (REFUND, ADOPT), detail), external_id=one.id)
    wanted, kept = due(book), main.intent.received - by_us
    if kept != wanted or not same_currency(main.intent, book):
        detail = _("charged %(charged)s %(currency)s for an order of %(total)s %(of)s") % {
            "charged": from_minor(kept, main.intent.currency),
            "currency": main.intent.currency.upper(),
            "total": book.total,
            "of": book.currency,
        }
        more = same_currency(main.intent, book) and wanted is not None and kept > wanted
        yield _found("amount", book, main, too_much(book, main) if more else kept, (ADOPT, REFUND) if more else (ADOPT,), detail)


def for_returns_of(book: Book, charge: Charge) -> dict[str, str]:
    """The refunds that returns made, with the return's number; and those that gave back the money of one that had failed."""
    found = dict(book.returned)
    for one in reversed(charge.refunds):  # the oldest first: a replacement may fail, too
        if one.replaces in found:
            found[one.id] = found[one.replaces]
    return found


def too_much(book: Book, charge: Charge) -> int:
    """By how much the charge, less its refunds, exceeds the order's total, in minor units."""
    return max(0, charge.kept - (due(book) or 0))


def _found(kind: str, book: Book, charge: Charge, amount: int, verbs: tuple[str, ...], detail: str) -> Found:
    money: Decimal = from_minor(amount, charge.intent.currency)
    return Found(
        kind=kind,
        order=book.key,
        external_id=charge.intent.id,
        key=charge.intent.step_key or "",
        run_id=book.run_id,
        amount=money,
        currency=charge.intent.currency.upper(),
        verbs=verbs,
        detail=detail,
    )
