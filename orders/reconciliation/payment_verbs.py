"""What settles a charge: refund it, cancel it, or adopt it into our books. Repeated or parallel calls do it at most once.

A full refund is safe by itself: Stripe gives back no more than was charged. A partial refund could be given twice. So
the key contains the payment's id and its number of refunds: two calls that start from the same state make one refund.
After a stored server error the call needs a new key, once a look at the service has shown that nothing was done.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from functools import partial

from orders import accounting
from orders.documents import crediting
from orders.gateways import payment
from orders.gateways.money import from_minor
from orders.gateways.payment import Broken, Intent, Unavailable
from orders.reconciliation import again, books
from orders.reconciliation.asking import once, patiently
from orders.reconciliation.charges import AGENT, SERVICE, Charge, too_much
from orders.reconciliation.comparing import Done
from orders.refunds.again import under_way
from supervision import EffectOutcome
from supervision.ledger import adoption
from supervision.ledger.reconciliation import ADOPT, CANCEL, REFUND, CannotSettle, Found
from supervision.models import Notification


def act(found: Found, verb: str, *, by: str, tries: int) -> Done:
    """Do what the verb says. Raises CannotSettle, or the gateway's error if the result is unknown."""
    if verb == ADOPT:
        return _adopt(found, by)
    if verb == REFUND and under_way(found.order, [found.external_id]):
        raise CannotSettle("a refund that was asked for pays this money again, and has not ended yet")
    if verb == REFUND and found.external_id.startswith("re_"):
        return again.pay(found, tries)
    if verb == REFUND:
        return _refund(found, by, tries)
    if verb == CANCEL:
        return _cancel(found, by)
    raise CannotSettle(f"a charge cannot be settled by {verb}")


def _adopt(found: Found, by: str) -> Done:
    """Accept the difference. A charge of this order that our books do not have is written into them.

    Money that went back without our books gets its credit note: this verb says that it was meant to.
    """
    if paid := _went_back(found):
        Notification.objects.create(kind=accounting.ISSUE_REFUND_NOTES, payload={"refunds": [paid]})
    if found.kind != "orphan_charge":
        return Done(f"accepted: {found.detail}", changed=False)
    book = books.of([found.order])[found.order]
    steps = [step for step in book.all_of(AGENT) if step["direction"] == "do"]
    if book.run_id is None or not steps:
        raise CannotSettle("there is no order to adopt it into")
    noted = adoption.note_done(
        book.run_id,
        steps[-1]["position"],
        key=found.key or f"adopted:{found.external_id}",
        service=SERVICE,
        operation="confirm",
        amount=found.amount,
        currency=found.currency,
        external_id=found.external_id,
        by=by,
    )
    if not noted:
        return Done("accepted: the order is archived, and its books stay as they are", changed=False)
    return Done(f"{found.external_id} is the order's charge now")


def _went_back(found: Found) -> Mapping[str, str] | None:
    """What a credit note takes from the invoice when this is accepted: what was given back at the payment service, or the whole charge."""
    amount = found.amount or Decimal(0)
    if found.kind == "refunded_elsewhere":
        return crediting.credited_elsewhere(found.order, found.external_id, amount)
    if found.kind != "missing_charge":
        return None
    effects = books.of([found.order])[found.order].effects_of(SERVICE)
    given = [one for one in effects if one["operation"] == "refund" and one["outcome"] == EffectOutcome.DONE and one["direction"] == "undo"]
    return crediting.credited_elsewhere(found.order, str(given[0]["external_id"]), amount) if given else None


def _refund(found: Found, by: str, tries: int) -> Done:
    intent = patiently(partial(payment.get, found.external_id), Broken, Unavailable)
    refunds = patiently(partial(payment.refunds_of, intent.id), Broken, Unavailable)
    charge = Charge(intent, tuple(refunds))
    book = books.of([found.order])[found.order]
    amount = too_much(book, charge) if found.kind == "amount" else charge.kept
    if amount <= 0:
        return Done("it was given back already")
    if found.amount is None or from_minor(amount, intent.currency) > found.amount:
        raise CannotSettle("it has changed just now: compare again")
    whole = amount == charge.kept
    first = f"reconcile:{intent.id}:refund:{len(refunds)}"

    def call(key: str) -> None:
        payment.refund(intent.id, key=key, amount=None if whole and not refunds else amount)

    def given() -> bool:
        now = patiently(partial(payment.refunds_of, intent.id), Broken, Unavailable)
        return Charge(intent, tuple(now)).kept <= charge.kept - amount

    once([first, first, f"{first}:{tries}"], call, given)
    for one in patiently(partial(payment.refunds_of, intent.id), Broken, Unavailable):
        if book.run_id is not None and one.gives_back and one.id not in {old.id for old in refunds}:
            _write_refund(book, intent, one.id, one.amount, by)
    if book.run_id is not None and whole:
        adoption.note_undone(book.run_id, service=SERVICE, external_id=intent.id, by=by)
    return Done(f"{from_minor(amount, intent.currency)} {intent.currency.upper()} given back")


def _write_refund(book: books.Book, intent: Intent, refund: str, amount: int, by: str) -> None:
    steps = book.all_of(AGENT)
    if book.run_id is None or not steps:
        return
    adoption.note_done(
        book.run_id,
        steps[-1]["position"],
        direction="undo",
        key=f"reconcile:{refund}",
        service=SERVICE,
        operation="refund",
        amount=from_minor(amount, intent.currency),
        currency=intent.currency.upper(),
        external_id=refund,
        by=by,
    )


def _cancel(found: Found, by: str) -> Done:
    def call(key: str) -> None:
        payment.cancel(found.external_id, key=key)

    def closed() -> bool:
        return patiently(partial(payment.get, found.external_id), Broken, Unavailable).status == payment.CANCELLED

    key = f"reconcile:{found.external_id}:cancel"
    once([key, key], call, closed)
    if found.run_id is not None:
        adoption.note_undone(found.run_id, service=SERVICE, external_id=found.external_id, by=by)
    return Done("cancelled: it can never be charged")
