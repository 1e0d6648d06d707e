"""An order's state in words for its customer: the only place that turns engine states into sentences.

Views pass an `OrderView`; templates print the result. Texts by agents or operators never reach the customer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from orders.queries import OrderView
from orders.templatetags.shop import money
from supervision.states import FINAL_RUN_STATES, Direction, Effect, ProcessState, RunState

STOCK, PAYMENT, SHIPMENT, CONFIRMATION = "reserve-stock", "charge-payment", "book-shipment", "notify-customer"


@dataclass(frozen=True, kw_only=True)
class Words:
    """One step's title for the customer, in each of its situations."""

    next: Any
    now: Any
    done: Any
    dropped: Any
    undoing: Any
    undone: Any


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One line of the progress list. `look` is its style: next, now, late, done, trouble, dropped or undone."""

    name: str
    title: str
    look: str
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Standing:
    """The order's progress for its page: a headline, its explanation, what happens to the money, and the stages."""

    headline: str
    lead: str
    tone: str
    money: str
    stages: Sequence[Stage]
    tracking_number: str
    final: bool


WORDS = {
    STOCK: Words(
        next=gettext_lazy("Set your items aside"),
        now=gettext_lazy("Setting your items aside"),
        done=gettext_lazy("Your items are set aside"),
        dropped=gettext_lazy("No items were set aside"),
        undoing=gettext_lazy("Putting your items back on the shelf"),
        undone=gettext_lazy("Your items are back on the shelf"),
    ),
    PAYMENT: Words(
        next=gettext_lazy("Charge your card"),
        now=gettext_lazy("Charging your card"),
        done=gettext_lazy("Your card was charged"),
        dropped=gettext_lazy("Your card was not charged"),
        undoing=gettext_lazy("Returning your money"),
        undone=gettext_lazy("Nothing is charged to your card any more"),
    ),
    SHIPMENT: Words(
        next=gettext_lazy("Book the delivery"),
        now=gettext_lazy("Booking the delivery"),
        done=gettext_lazy("The delivery is booked"),
        dropped=gettext_lazy("No delivery was booked"),
        undoing=gettext_lazy("Calling the delivery off"),
        undone=gettext_lazy("The delivery is called off"),
    ),
    CONFIRMATION: Words(
        next=gettext_lazy("Send your confirmation"),
        now=gettext_lazy("Sending your confirmation"),
        done=gettext_lazy("Your confirmation is sent"),
        dropped=gettext_lazy("No confirmation was sent"),
        undoing=gettext_lazy("Sending a correction"),
        undone=gettext_lazy("A correction is sent"),
    ),
}
STATE_WORDS: dict[str, tuple[Any, str]] = {
    RunState.PENDING: (gettext_lazy("Received"), ""),
    RunState.PROCESSING: (gettext_lazy("In progress"), ""),
    RunState.PROCESSED: (gettext_lazy("On its way"), "good"),
    RunState.ERROR: (gettext_lazy("We are looking into it"), "warn"),
    RunState.COMPENSATING: (gettext_lazy("Being cancelled"), "calm"),
    RunState.CANCELLED: (gettext_lazy("Cancelled"), "calm"),
}


def standing(view: OrderView) -> Standing:
    """The order's progress, in words for its customer."""
    done = {step.name: step for step in view.steps if step.direction == Direction.DO}
    undone = {step.name: step for step in view.steps if step.direction == Direction.UNDO}
    headline, lead, tone = _headline(view)
    stages = [_stage(view, name, done.get(name), undone.get(name)) for name in (done or WORDS)]
    return Standing(
        headline=headline,
        lead=lead,
        tone=tone,
        money=_money(view, done.get(PAYMENT), undone.get(PAYMENT)),
        stages=stages,
        tracking_number=_tracking_number(view, done.get(SHIPMENT)),
        final=view.process_state in FINAL_RUN_STATES,
    )


def _headline(view: OrderView) -> tuple[str, str, str]:
    state = view.process_state
    if state == RunState.PROCESSED:
        return _("Your order is on its way"), _processed_lead(view), "good"
    if state == RunState.CANCELLED and view.out_of_stock:
        return _("Something you ordered is sold out"), _("We are sorry: so we cancelled the whole order."), "warn"
    if state == RunState.CANCELLED:
        return _("Your order is cancelled"), _("Nothing more will happen."), "calm"
    if state == RunState.ERROR or view.stuck:
        lead = _("Something did not go as it should. Our team knows and takes care of it; you need not do anything.")
        return _("We are looking into it"), lead, "warn"
    if state == RunState.COMPENSATING and view.out_of_stock:
        return _("Something you ordered is sold out"), _("We are sorry: we are cancelling the whole order."), "warn"
    if state == RunState.COMPENSATING or view.cancel_requested_at is not None:
        return _("We are cancelling your order"), _("What was already done is being undone, step by step."), "calm"
    lead = _("You may close this page: the same link brings you back, and we write to %(email)s.") % {"email": view.email}
    if state == RunState.PENDING:
        return _("We have your order"), lead, ""
    return _("We are working on your order"), lead, ""


def _processed_lead(view: OrderView) -> str:
    if any(step.name == CONFIRMATION and step.process_state == ProcessState.SKIPPED for step in view.steps):
        return _("Everything is done, only our mail did not get through: this page is your confirmation.")
    return _("Everything is done. The confirmation went to %(email)s.") % {"email": view.email}


def _stage(view: OrderView, name: str, do: Any, undo: Any) -> Stage:
    # A step that is not in WORDS, because a later workflow added it, is shown under its own name.
    words = WORDS.get(name) or Words(next=name, now=name, done=name, dropped=name, undoing=name, undone=name)
    if undo is not None:
        return _undo_stage(name, words, undo)
    ending = view.process_state in (RunState.COMPENSATING, RunState.CANCELLED)
    state = do.process_state if do is not None else ProcessState.PENDING
    if state == ProcessState.PROCESSED:
        return Stage(name=name, title=str(words.done), look="done")
    if ending and view.out_of_stock and do is not None and name == STOCK:
        return Stage(name=name, title=_("Something you ordered is sold out"), look="trouble")
    if ending or state == ProcessState.CANCELLED:
        return Stage(name=name, title=str(words.dropped), look="dropped")
    if state == ProcessState.SKIPPED:
        note = _("The rest of your order is not affected.")
        return Stage(name=name, title=str(words.dropped), look="dropped", note=note)
    if state == ProcessState.ERROR:
        return Stage(name=name, title=str(words.now), look="trouble", note=_("This did not work. We are looking into it."))
    if state == ProcessState.PROCESSING:
        note = _("Not the first try; it takes a little longer than usual.") if do.failure_count else ""
        return Stage(name=name, title=str(words.now), look="now", note=note)
    if do is not None and (do.attempt or do.failure_count):
        note = _("This takes longer than usual. We keep trying by ourselves.")
        return Stage(name=name, title=str(words.now), look="late", note=note)
    return Stage(name=name, title=str(words.next), look="next")


def _undo_stage(name: str, words: Words, undo: Any) -> Stage:
    if undo.process_state == ProcessState.PROCESSED:
        return Stage(name=name, title=str(words.undone), look="undone")
    if undo.process_state == ProcessState.ERROR:
        return Stage(name=name, title=str(words.undoing), look="trouble", note=_("This did not work. We are looking into it."))
    if undo.process_state == ProcessState.SKIPPED:
        return Stage(name=name, title=str(words.undone), look="undone", note=_("Our team took care of it."))
    look = "now" if undo.process_state == ProcessState.PROCESSING else "late"
    return Stage(name=name, title=str(words.undoing), look=look)


def _money(view: OrderView, do: Any, undo: Any) -> str:
    """What happens to the customer's money; empty while the order goes on normally."""
    undoing = view.process_state in (RunState.COMPENSATING, RunState.CANCELLED)
    if not undoing and view.process_state != RunState.ERROR and not view.stuck:
        return ""
    total = {"total": money(view.total, view.currency)}
    effect = Effect.NONE if do is None else do.effect
    charged = do is not None and do.process_state == ProcessState.PROCESSED
    if undo is not None and undo.process_state in (ProcessState.PROCESSED, ProcessState.SKIPPED):
        if charged:
            return _("The %(total)s you paid goes back to your card. Your bank may take a few days to show it.") % total
        return _("Your card is not charged. If it shows an amount reserved by us, your bank releases it within a few days.")
    if undo is not None and charged:
        return _("We are returning the %(total)s you paid to your card.") % total
    if undo is not None or effect == Effect.UNKNOWN:
        return _("We are checking whether your card was charged. You never pay twice, nor for what you do not get.")
    if charged:
        return _("Your card was charged %(total)s. What we cannot deliver, we pay back.") % total
    return _("Your card was not charged.")


def _tracking_number(view: OrderView, shipment: Any) -> str:
    if view.process_state in (RunState.COMPENSATING, RunState.CANCELLED) or shipment is None:
        return ""
    result = shipment.result if shipment.process_state == ProcessState.PROCESSED else None
    return str(result.get("tracking_number") or "") if isinstance(result, dict) else ""
