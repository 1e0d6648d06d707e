"""The state of an order's payment, from its steps: the member `payment` of the order's answer.

none               nothing was tried yet, or the order ended without a payment
pending            it is being charged, looked at or undone; or reserved on the card, to be charged once the goods are booked
action_required    the customer has to open `action_url` and confirm it
paid               charged in full
refused            not charged; the customer may pay in another way
refunded, partly_refunded  charged, and given back since
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from orders.models import PaymentAdjustment
from orders.payments import codes
from orders.returns.codes import amount_said
from supervision.models import Run, StepState
from supervision.postgres import db
from supervision.states import Direction, ProcessState, RunState

NONE, PENDING, ACTION_REQUIRED, PAID, REFUSED = "none", "pending", "action_required", "paid", "refused"
REFUNDED, PARTLY_REFUNDED = "refunded", "partly_refunded"
STATES = (NONE, PENDING, ACTION_REQUIRED, PAID, REFUSED, REFUNDED, PARTLY_REFUNDED)

_REFUSED = """
SELECT a.run_id, a.code FROM supervision_alert a
 WHERE a.run_id = ANY (%(runs)s::bigint[]) AND a.direction = 'do' AND a.kind = 'error' AND a.closed_at IS NULL
   AND a.step = ANY (%(steps)s::text[]) AND a.code = ANY (%(codes)s)
"""


_ADJUSTMENTS = """
SELECT order_key, intent, sum(amount) FROM orders_paymentadjustment
 WHERE order_key = ANY (%(orders)s::text[]) AND gives_back GROUP BY order_key, intent
UNION ALL
SELECT order_key, '', sum(amount) FROM supervision_finding
 WHERE order_key = ANY (%(orders)s::text[]) AND service = 'payment' AND kind = 'refund_failed' AND closed_at IS NULL GROUP BY order_key
"""


@dataclass(frozen=True)
class Payment:
    """An order's payment. paid, refunded: amounts in the order's currency. refusal: the code of the last refusal.

    transfer: whether it waits for a bank transfer; `paid` is then what has come. More than the total has to be paid back.
    reserved: whether the total is reserved on the card, and not charged yet. owed: what was sent back, and has failed to arrive.
    """

    state: str = NONE
    action_url: str | None = None
    paid: Decimal = Decimal("0.00")
    refunded: Decimal = Decimal("0.00")
    refusal: str = ""
    transfer: bool = False
    reserved: bool = False
    owed: Decimal = Decimal("0.00")

    def answer(self) -> dict[str, Any]:
        """The member `payment` of the order's answer: JSON values."""
        return {"state": self.state, "action_url": self.action_url, "paid": str(self.paid), "refunded": str(self.refunded)}


NO_PAYMENT = Payment()


def refusals(runs: Sequence[Run]) -> Mapping[int, str]:
    """Why the payments of these orders were refused, by run. One query if one of the orders is in Error; otherwise none."""
    stopped = [run.pk for run in runs if run.process_state == RunState.ERROR and run.direction == Direction.DO]
    if not stopped:
        return {}
    return dict(db.run(_REFUSED, {"runs": stopped, "steps": list(codes.STEPS), "codes": sorted(codes.REFUSALS)}))


def adjustments(order: str) -> list[PaymentAdjustment]:
    """The refunds and disputes of this order's charges, as the payment service showed them last; the oldest first."""
    return list(PaymentAdjustment.objects.filter(order_key=order).order_by("pk"))


GivenBack = Mapping[tuple[str, str], Decimal]  # by order and payment; without a payment: what has failed to go back


def given_back(paid: Sequence[str], told: Iterable[PaymentAdjustment] | None = None) -> GivenBack:
    """What was refunded of the charges of these orders, given by their public ids. One query if there are any.

    told: all that the payment service told of them, for an order whose rows are in the archive.
    """
    if not paid:
        return {}
    found = {(order, intent): amount for order, intent, amount in db.run(_ADJUSTMENTS, {"orders": list(paid)})}
    if told is None:
        return found
    found = {place: amount for place, amount in found.items() if not place[1]}
    for row in told:
        if row.gives_back:
            place = (row.order_key, row.intent)
            found[place] = found.get(place, Decimal(0)) + row.amount
    return found


def charge_of(steps: Sequence[StepState]) -> str | None:
    """The payment by card that these steps have taken; None if there is none."""
    paid = [
        step.result or {}
        for step in steps
        if step.name in codes.TAKES_MONEY and step.direction == Direction.DO and step.process_state == ProcessState.PROCESSED
    ]
    return next((str(result["intent"]) for result in reversed(paid) if result.get("intent")), None)


def was_taken(steps: Sequence[StepState]) -> bool:
    """Whether a step of these that takes the money is done; not where an operator has skipped it."""
    return any(
        step.name in codes.TAKES_MONEY and step.direction == Direction.DO and step.process_state == ProcessState.PROCESSED for step in steps
    )


def holds_transfer(step: StepState) -> bool:
    """Whether money has come by bank transfer in this step, or may have: some of it, too, and also by its result by hand."""
    result, noted = step.result or {}, (step.checkpoint or {}).get(codes.TRANSFERS)
    return bool(noted) or codes.by_transfer(result)


def came_by_transfer(steps: Sequence[StepState]) -> bool:
    """Whether the money of these steps came by bank transfer."""
    takes = (*codes.TAKES_MONEY, codes.AUTHORISE)
    done = [
        step for step in steps if step.name in takes and step.direction == Direction.DO and step.process_state == ProcessState.PROCESSED
    ]
    return any("received" in (step.result or {}) for step in done)


def is_charged(steps: Sequence[StepState]) -> bool:
    """Whether the step of these steps that takes the money is done, or being undone."""
    charge = _step(steps, codes.TAKES_MONEY)
    undone = any(step.name in codes.STEPS and step.direction == Direction.UNDO for step in steps)
    return undone or (charge is not None and charge.process_state == ProcessState.PROCESSED)


def payment_of(run: Run, steps: Sequence[StepState], total: Decimal, *, refusal: str = "", back: GivenBack | None = None) -> Payment:
    """The payment of one order. steps: all of its steps. refusal: from `refusals`; back: from `given_back`."""
    charge, authorise = _step(steps, codes.TAKES_MONEY), _step(steps, (codes.AUTHORISE,))
    if charge is None:
        return NO_PAYMENT
    owed = (back or {}).get((run.key, ""), total * 0)
    undos = [step for step in steps if step.name in codes.STEPS and step.direction == Direction.UNDO]
    if undos and all(undo.process_state == ProcessState.PROCESSED for undo in undos):
        # An undo may give back a charge of which the step itself never heard.
        given = any((undo.result or {}).get("refunded") for undo in undos)
        return _given_back(total, total, owed) if given else NO_PAYMENT
    for done in (authorise, charge):
        if done is not None and done.process_state == ProcessState.PROCESSED and "received" in (done.result or {}):
            came = amount_said((done.result or {})["received"]).quantize(total)
            sent = min(came, (back or {}).get((run.key, codes.BANK_TRANSFER), total * 0)).quantize(total)
            return Payment(PAID if not sent else REFUNDED if sent >= total else PARTLY_REFUNDED, None, came, sent)
    if charge.process_state == ProcessState.PROCESSED:
        name = str((charge.result or {}).get("intent") or "")
        return _given_back(total, (back or {}).get((run.key, name), total * 0) + owed, owed)
    if undos:
        return Payment(PENDING)
    if refusal:
        return Payment(REFUSED, refusal=refusal)
    if run.finished_at is not None:
        return NO_PAYMENT
    reserved = authorise is not None and authorise.process_state == ProcessState.PROCESSED
    step = charge if authorise is None or reserved or authorise.process_state == ProcessState.SKIPPED else authorise
    if step.process_state in (ProcessState.SKIPPED, ProcessState.CANCELLED) or not (step.attempt or reserved):
        return NO_PAYMENT
    return _under_way(run, step, total, reserved=reserved and not has_lapsed(authorise, step))


def _given_back(total: Decimal, sent: Decimal, owed: Decimal) -> Payment:
    """A charge of which this much was sent back, of which `owed` has failed to arrive."""
    refunded = max(total * 0, min(total, (sent - owed).quantize(total)))
    state = PAID if not refunded else REFUNDED if refunded >= total else PARTLY_REFUNDED
    return Payment(state, None, total, refunded, owed=owed.quantize(total))


def has_lapsed(authorise: StepState | None, charge: StepState) -> bool:
    """Whether an attempt to charge what the other step has reserved has found that it lapsed."""
    name = str(((authorise.result if authorise else None) or {}).get("intent") or "")
    return bool((charge.checkpoint or {}).get(codes.LAPSED) == name)


def _under_way(run: Run, step: StepState, total: Decimal, *, reserved: bool) -> Payment:
    """The payment of an order whose step has begun, and may still charge or reserve. reserved: an earlier step has reserved."""
    asleep = step.process_state == ProcessState.PENDING and step.turn_at is None and run.direction == Direction.DO
    if asleep and step.awaits == codes.ANSWERED:
        url = ((step.checkpoint or {}).get(codes.ACTION) or {}).get("url")
        return Payment(ACTION_REQUIRED, url) if url else Payment(PENDING)
    if asleep and step.awaits == codes.TRANSFER:
        transfers = ((step.checkpoint or {}).get(codes.TRANSFERS) or {}).values()
        came = sum((Decimal(amount) for amount, of in transfers if of == run.payload.get("currency")), total * 0)
        return Payment(PENDING, None, came.quantize(total), transfer=True)
    return Payment(PENDING, reserved=reserved)


def _step(steps: Sequence[StepState], names: tuple[str, ...]) -> StepState | None:
    return next((step for step in steps if step.name in names and step.direction == Direction.DO), None)
