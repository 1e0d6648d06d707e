"""Gives back once more what a failed refund of a return did not. The new refund names the failed one in its metadata (`replaces`).

A failed refund is replaced at most once: every call for it has the same key, and a call that comes later finds the replacement. If
that one fails, too, it is a finding of its own. A return that has ended pays nothing back itself any more, so only those are settled.
"""

from __future__ import annotations

from functools import partial

from orders.agents import payment_news
from orders.gateways import payment
from orders.gateways.money import from_minor, to_minor
from orders.gateways.payment import Broken, Refund, Unavailable
from orders.models import Refund as AskedRefund
from orders.payments import cards
from orders.reconciliation.asking import once, patiently
from orders.reconciliation.charges import SERVICE
from orders.reconciliation.comparing import Done
from orders.returns import codes
from supervision.ledger import adoption
from supervision.ledger.reconciliation import CannotSettle, Found
from supervision.models import Run, StepState
from supervision.states import Direction


def pay(found: Found, tries: int) -> Done:
    """Pay the failed refund's amount back, once. Raises CannotSettle, or the gateway's error where the result is unknown."""
    failed = patiently(partial(payment.refund_of, found.external_id), Broken, Unavailable)
    back, words = str(failed.of_return), f"{from_minor(failed.amount, failed.currency)} {failed.currency.upper()}"
    if _replacement(failed) is None:
        if Run.objects.filter(key=back, finished_at=None).exists():
            raise CannotSettle("the return has not ended yet: its own steps may pay the money back")
        if (left := _left(failed.intent) - _by_hand(found, failed)) < failed.amount:
            rest = from_minor(max(0, left), failed.currency)
            raise CannotSettle(f"only {rest} of {words} are left of the charge: pay the customer in another way, then adopt this")
        first = f"{failed.id}:again"
        facts = {"return": back, "step_key": first, "replaces": failed.id}

        def call(key: str) -> None:
            payment.refund(failed.intent, key=key, amount=failed.amount, metadata=facts)

        once([first, first, f"{first}:{tries}"], call, lambda: _replacement(failed) is not None)
    return Done(f"{words} given back again")


def note(found: Found, by: str) -> None:
    """Write a replacement that was made into our books, also one of a settlement that died after its call."""
    failed = patiently(partial(payment.refund_of, found.external_id), Broken, Unavailable)
    if (made := _replacement(failed)) is not None:
        _write(failed, made, _root(failed), by)
        payment_news.record(found.order, patiently(partial(payment.refunds_of, failed.intent), Broken, Unavailable))


def _root(failed: Refund) -> str:
    """The return or refund whose money this was at first: a refund that was paid again may fail, too."""
    row = AskedRefund.objects.filter(public_id=failed.of_return, replaces__startswith="re_").first()
    return str(failed.of_return) if row is None else _root(patiently(partial(payment.refund_of, row.replaces), Broken, Unavailable))


def _replacement(failed: Refund) -> Refund | None:
    refunds = patiently(partial(payment.refunds_of, failed.intent), Broken, Unavailable)
    return next((one for one in refunds if one.replaces == failed.id), None)


def _left(intent: str) -> int:
    """What of the charge the customer has neither got back nor disputes, in minor units."""
    refunds = patiently(partial(payment.refunds_of, intent), Broken, Unavailable)
    disputes = patiently(partial(payment.disputes_of, intent), Broken, Unavailable)
    gone = sum(one.amount for one in refunds if one.gives_back) + sum(one.amount for one in disputes if one.hurts)
    return patiently(partial(payment.get, intent), Broken, Unavailable).received - gone


def _by_hand(found: Found, failed: Refund) -> int:
    """What operators gave back by hand of the charge, in minor units."""
    amount = cards.given(found.order, failed.intent)
    return to_minor(amount, failed.currency) if amount else 0


def _write(failed: Refund, made: Refund, back: str, by: str) -> None:
    """Note both refunds in the ledger of the return. One that is archived keeps its books: the metadata tells of the replacement."""
    step = StepState.objects.filter(run__key=back, name=codes.REFUND, direction=Direction.DO).first()
    if step is None:
        return
    adoption.note_done(
        step.run_id,
        step.position,
        key=f"{failed.id}:again",
        service=SERVICE,
        operation=codes.REFUND,
        amount=from_minor(made.amount, made.currency),
        currency=made.currency.upper(),
        external_id=made.id,
        by=by,
    )
    adoption.note_undone(step.run_id, service=SERVICE, external_id=failed.id, by=by)
