"""An order's state in words for its customer: the only place that turns engine states into sentences.

Views pass an `OrderView`; templates print the result. Texts by agents or operators never reach the customer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from orders.formats import money
from orders.parcels import extent, shown, states
from orders.payments import codes
from orders.payments.state import ACTION_REQUIRED, REFUSED, has_lapsed
from orders.queries import OrderView
from orders.staying import is_left
from supervision.states import FINAL_RUN_STATES, Direction, Effect, ProcessState, RunState

STOCK, PAYMENT, SHIPMENT, CONFIRMATION = "reserve-stock", codes.STEP, "book-shipment", "notify-customer"
AUTHORISE, CAPTURE = codes.AUTHORISE, codes.CAPTURE


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
class Travel:
    """Where one parcel is. `look` is its style, as a stage's; the tracking number is empty before the booking."""

    title: str
    look: str
    tracking_number: str


@dataclass(frozen=True, kw_only=True)
class Standing:
    """The order's progress for its page: a headline, its explanation, what happens to the money, and the stages.

    action_url: the bank's page, while the customer has to confirm the payment there.
    """

    headline: str
    lead: str
    tone: str
    money: str
    stages: Sequence[Stage]
    parcels: Sequence[Travel]
    final: bool
    action_url: str | None = None


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
# Of orders that reserve the money at the checkout, and are charged once the goods are booked.
WORDS_OF_RESERVING = {
    STOCK: WORDS[STOCK],
    AUTHORISE: Words(
        next=gettext_lazy("Reserve the amount on your card"),
        now=gettext_lazy("Reserving the amount on your card"),
        done=gettext_lazy("The amount is reserved on your card"),
        dropped=gettext_lazy("Nothing was reserved on your card"),
        undoing=gettext_lazy("Releasing the amount on your card"),
        undone=gettext_lazy("Nothing is reserved on your card any more"),
    ),
    SHIPMENT: WORDS[SHIPMENT],
    CAPTURE: WORDS[PAYMENT],
    CONFIRMATION: WORDS[CONFIRMATION],
}
TRANSFER_WORDS = Words(
    next=gettext_lazy("Wait for your transfer"),
    now=gettext_lazy("Waiting for your transfer"),
    done=gettext_lazy("Your transfer has come"),
    dropped=gettext_lazy("No transfer is expected any more"),
    undoing=gettext_lazy("Returning your money"),
    undone=gettext_lazy("Your money is returned"),
)
WHY_REFUSED = {
    codes.TRANSFER_MISSING: gettext_lazy("Your transfer has not come in time."),
    codes.CARD_DECLINED: gettext_lazy("Your card was declined."),
    codes.PAYMENT_REFUSED: gettext_lazy("Your payment method was not accepted."),
    codes.ACTION_REQUIRED: gettext_lazy("Your bank asks for a confirmation that cannot be given here."),
    codes.ACTION_REFUSED: gettext_lazy("Your bank did not confirm the payment."),
    codes.ACTION_TIMEOUT: gettext_lazy("The payment was not confirmed in time."),
    codes.PAYMENT_CANCELLED: gettext_lazy("The payment was cancelled."),
    codes.AUTHORISATION_LAPSED: gettext_lazy("The amount that was reserved on your card can not be charged any more."),
}
STATE_WORDS: dict[str, tuple[Any, str]] = {
    RunState.PENDING: (gettext_lazy("Received"), ""),
    RunState.PROCESSING: (gettext_lazy("In progress"), ""),
    RunState.PROCESSED: (gettext_lazy("On its way"), "good"),
    RunState.ERROR: (gettext_lazy("We are looking into it"), "warn"),
    RunState.COMPENSATING: (gettext_lazy("Being cancelled"), "calm"),
    RunState.CANCELLED: (gettext_lazy("Cancelled"), "calm"),
}


_BOOKED_WORDS = {
    extent.PART: (gettext_lazy("Partly on its way"), "good"),
    extent.NONE: (gettext_lazy("Not sent yet"), "warn"),
}


def in_short(process_state: str, booked: str) -> tuple[Any, str]:
    """An order's state in two or three words, and its tone. booked: how much of it was booked, if it is Processed."""
    return _BOOKED_WORDS.get(booked, STATE_WORDS[process_state]) if process_state == RunState.PROCESSED else STATE_WORDS[process_state]


def standing(view: OrderView) -> Standing:
    """The order's progress, in words for its customer."""
    done = {step.name: step for step in view.steps if step.direction == Direction.DO}
    undone = {step.name: step for step in view.steps if step.direction == Direction.UNDO}
    headline, lead, tone = _headline(view)
    names = list(done or (WORDS_OF_RESERVING if view.reserves else WORDS))
    if CAPTURE in names and _by_transfer(view, AUTHORISE):
        names.remove(CAPTURE)  # the transfer is the payment
    stages = [_stage(view, name, done.get(name), undone.get(name)) for name in names]
    return Standing(
        headline=headline,
        lead=lead,
        tone=tone,
        money=_money(view, done.get(PAYMENT) or done.get(CAPTURE), undone.get(PAYMENT) or undone.get(CAPTURE) or undone.get(AUTHORISE)),
        stages=stages,
        parcels=_travels(view),
        final=view.process_state in FINAL_RUN_STATES,
        action_url=view.payment.action_url,
    )


def _headline(view: OrderView) -> tuple[str, str, str]:
    state = view.process_state
    if state == RunState.PROCESSED:
        return _processed(view)
    if state == RunState.CANCELLED and view.out_of_stock:
        return _("Something you ordered is sold out"), _("We are sorry: so we cancelled the whole order."), "warn"
    if state == RunState.CANCELLED:
        return _("Your order is cancelled"), _("Nothing more will happen."), "calm"
    if view.payment.state == REFUSED:
        lead = _("%(why)s Nothing is charged, and your items are still set aside for you.") % {"why": WHY_REFUSED[view.payment.refusal]}
        return _("Your payment was refused"), lead, "warn"
    if view.payment.transfer and view.cancel_requested_at is None:
        left = {"left": money(view.total - view.payment.paid, view.currency), "account": settings.BANK_ACCOUNT, "number": view.number}
        lead = _("Account: %(account)s. Reference: %(number)s. Your items are set aside for you.") % left
        if view.payment.paid:
            lead = f"{_('%(came)s have come.') % {'came': money(view.payment.paid, view.currency)}} {lead}"
        return _("Please transfer %(left)s") % left, lead, "warn"
    if view.payment.state == ACTION_REQUIRED and view.cancel_requested_at is None:
        lead = _("Your bank asks you to confirm it. Nothing is charged before, and your items are set aside for you.")
        return _("Please confirm your payment"), lead, "warn"
    if state == RunState.ERROR or view.stuck:
        lead = _("Something did not go as it should. Our team knows and takes care of it; you need not do anything.")
        return _("We are looking into it"), lead, "warn"
    if view.goes_back:
        lead = _("A part of it is taken back and then done anew. You need not do anything.")
        return _("We are going over your order again"), lead, "calm"
    if state == RunState.COMPENSATING and view.out_of_stock:
        return _("Something you ordered is sold out"), _("We are sorry: we are cancelling the whole order."), "warn"
    if state == RunState.COMPENSATING or view.cancel_requested_at is not None:
        return _("We are cancelling your order"), _("What was already done is being undone, step by step."), "calm"
    lead = _("You may close this page: the same link brings you back, and we write to %(email)s.") % {"email": view.email}
    if state == RunState.PENDING:
        return _("We have your order"), lead, ""
    return _("We are working on your order"), lead, ""


def _processed(view: OrderView) -> tuple[str, str, str]:
    where = {parcel.state for parcel in view.parcels}
    if states.RETURNED in where:
        lead = _("It could not be delivered and comes back to us. Our team takes care of it.")
        return ngettext("Your parcel comes back", "A parcel of yours comes back", len(view.parcels)), lead, "warn"
    booked = extent.of(view.steps)
    if booked == extent.NONE and not view.parcels:
        return _("Your order is not sent yet"), _("Our team takes care of it."), "warn"
    if booked == extent.PART and where == {states.DELIVERED}:
        return _("A part of your order is delivered"), _("Our team takes care of the rest."), "good"
    if booked == extent.PART:
        return _("A part of your order is on its way"), _("Our team takes care of the rest."), "good"
    if where == {states.DELIVERED}:
        return _("Your order is delivered"), _processed_lead(view), "good"
    return _("Your order is on its way"), _processed_lead(view), "good"


def _processed_lead(view: OrderView) -> str:
    if any(step.name == CONFIRMATION and step.process_state == ProcessState.SKIPPED for step in view.steps):
        return _("Everything is done, only our mail did not get through: this page is your confirmation.")
    return _("Everything is done. The confirmation went to %(email)s.") % {"email": view.email}


def _stage(view: OrderView, name: str, do: Any, undo: Any) -> Stage:
    # A step that is not in WORDS, because a later workflow added it, is shown under its own name.
    known = TRANSFER_WORDS if _by_transfer(view, name) else WORDS.get(name) or WORDS_OF_RESERVING.get(name)
    words = known or Words(next=name, now=name, done=name, dropped=name, undoing=name, undone=name)
    if undo is not None and is_left(undo) and do is not None and do.process_state == ProcessState.PROCESSED:
        return Stage(name=name, title=str(words.done), look="done")
    if undo is not None:
        return _undo_stage(name, words, undo)
    ending = view.process_state in (RunState.COMPENSATING, RunState.CANCELLED)
    state = do.process_state if do is not None else ProcessState.PENDING
    booked = extent.of(view.steps) if name == SHIPMENT and state in (ProcessState.PROCESSED, ProcessState.SKIPPED) else extent.ALL
    if booked == extent.PART and not ending:
        return Stage(name=name, title=_("A part of the delivery is booked"), look="done", note=_("Our team takes care of the rest."))
    if booked == extent.NONE and not ending:
        return Stage(name=name, title=str(words.dropped), look="dropped", note=_("Our team takes care of it."))
    if state == ProcessState.PROCESSED:
        was_reserved = known is WORDS_OF_RESERVING[AUTHORISE] and not view.payment.reserved  # charged since, or lapsed
        title = _("The amount was reserved on your card") if was_reserved else str(words.done)
        return Stage(name=name, title=title, look="done")
    if ending and view.out_of_stock and do is not None and name == STOCK:
        return Stage(name=name, title=_("Something you ordered is sold out"), look="trouble")
    if ending or state == ProcessState.CANCELLED:
        return Stage(name=name, title=str(words.dropped), look="dropped")
    if state == ProcessState.SKIPPED:
        note = _("The rest of your order is not affected.")
        return Stage(name=name, title=str(words.dropped), look="dropped", note=note)
    if name in codes.STEPS and state == ProcessState.ERROR and view.payment.state == REFUSED:
        return Stage(name=name, title=str(words.dropped), look="trouble", note=_("Please pay in another way."))
    waits = name in codes.STEPS and do is not None and do.awaits is not None
    if waits and view.payment.transfer:
        return Stage(name=name, title=_("Waiting for your transfer"), look="late")
    if waits and view.payment.state == ACTION_REQUIRED:
        return Stage(name=name, title=_("Waiting for your confirmation"), look="late")
    if state == ProcessState.ERROR:
        return Stage(name=name, title=str(words.now), look="trouble", note=_("This did not work. We are looking into it."))
    if state == ProcessState.PROCESSING:
        note = _("Not the first try; it takes a little longer than usual.") if do.failure_count else ""
        return Stage(name=name, title=str(words.now), look="now", note=note)
    if do is not None and (do.attempt or do.failure_count):
        note = _("This takes longer than usual. We keep trying by ourselves.")
        return Stage(name=name, title=str(words.now), look="late", note=note)
    return Stage(name=name, title=str(words.next), look="next")


def _by_transfer(view: OrderView, name: str) -> bool:
    """Whether the customer pays by transfer in this step: an order whose reserved amount has lapsed may, in the step that charges."""
    if view.payment_method != codes.BANK_TRANSFER or name not in codes.STEPS:
        return False
    steps = {step.name: step for step in view.steps if step.direction == Direction.DO}
    lapsed = CAPTURE in steps and has_lapsed(steps.get(AUTHORISE), steps[CAPTURE])
    return name == PAYMENT or (name == CAPTURE) == lapsed


def _undo_stage(name: str, words: Words, undo: Any) -> Stage:
    if undo.process_state == ProcessState.PROCESSED:
        return Stage(name=name, title=str(words.undone), look="undone")
    if undo.process_state == ProcessState.ERROR:
        return Stage(name=name, title=str(words.undoing), look="trouble", note=_("This did not work. We are looking into it."))
    if is_left(undo):
        return Stage(name=name, title=str(words.dropped), look="dropped", note=_("Our team took care of it."))
    if undo.process_state == ProcessState.SKIPPED:
        return Stage(name=name, title=str(words.undone), look="undone", note=_("Our team took care of it."))
    look = "now" if undo.process_state == ProcessState.PROCESSING else "late"
    return Stage(name=name, title=str(words.undoing), look=look)


def _money(view: OrderView, do: Any, undo: Any) -> str:
    """What happens to the customer's money; empty while the order goes on normally."""
    undoing = view.process_state in (RunState.COMPENSATING, RunState.CANCELLED)
    if view.payment_method == codes.BANK_TRANSFER:
        return _transferred(view)
    if view.payment.owed:
        facts = {"owed": money(view.payment.owed, view.currency)}
        return _("We have sent %(owed)s back to your card, and it did not arrive. We know, and we pay it in another way.") % facts
    if not undoing and view.payment.refunded:
        facts = {"part": money(view.payment.refunded, view.currency), "total": money(view.payment.paid, view.currency)}
        return _("%(part)s of the %(total)s you paid went back to your card.") % facts
    total = {"total": money(view.total, view.currency)}
    if view.payment.reserved and not undoing:
        return _("%(total)s are reserved on your card. We charge them once your delivery is booked.") % total
    if not undoing and view.process_state != RunState.ERROR and not view.stuck:
        return ""
    if view.payment.state == REFUSED:
        return ""  # the lead says it
    effect = Effect.NONE if do is None else do.effect
    charged = do is not None and do.process_state == ProcessState.PROCESSED
    if undo is not None and is_left(undo):
        if charged:
            return _("Your card was charged %(total)s, and it was not paid back. If you have questions, please write to us.") % total
        return _("Our team takes care of your payment. If you have questions, please write to us.")
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


def _transferred(view: OrderView) -> str:
    if view.payment.refunded:
        facts = {"part": money(view.payment.refunded, view.currency), "total": money(view.payment.paid, view.currency)}
        return _("We have transferred %(part)s of the %(total)s you paid back to your bank account.") % facts
    if view.payment.paid > view.total:
        facts = {"came": money(view.payment.paid, view.currency), "back": money(view.payment.paid - view.total, view.currency)}
        return _("%(came)s have come by transfer. We pay %(back)s back.") % facts
    if any(is_left(step) for step in view.steps if step.name in codes.STEPS):
        return _("Our team takes care of your payment. If you have questions, please write to us.")
    if view.process_state in (RunState.COMPENSATING, RunState.CANCELLED):
        return _("Please transfer nothing any more. What has come, we pay back.")
    return ""


TRAVELS = {
    shown.PREPARING: ("next", gettext_lazy("Being packed")),
    states.BOOKED: ("now", gettext_lazy("Waiting for the carrier")),
    states.PICKED_UP: ("now", gettext_lazy("On its way to you")),
    states.DELIVERED: ("done", gettext_lazy("Delivered")),
    states.RETURNED: ("trouble", gettext_lazy("On its way back to us")),
    shown.CANCELLED: ("undone", gettext_lazy("Cancelled")),
}


def _travels(view: OrderView) -> Sequence[Travel]:
    """Where the order's parcels are; none of an order that is being cancelled, and none before there is a tracking number."""
    if view.process_state in (RunState.COMPENSATING, RunState.CANCELLED) or not any(one.tracking_number for one in view.parcels):
        return ()
    return [
        Travel(title=str(TRAVELS[one.state][1]), look=TRAVELS[one.state][0], tracking_number=one.tracking_number) for one in view.parcels
    ]
