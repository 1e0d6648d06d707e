"""Charges an order once, and gives the money back.

Used by the `charge-payment` step, and by a step of returns (`payment_part`). In the workflow's other version,
`authorise-payment` reserves the money in the same way (read "reserve" for "charge" below), and `capture-payment` charges it
(`payment_capture`).

Charging takes two calls. Creating an intent moves no money. The agent checkpoints the intent's id and then confirms it. Why an
order is never charged twice, and never charged after it was undone:

1. Stripe charges an intent at most once, and never charges a cancelled one.
2. An attempt confirms an intent only after it has checkpointed the intent's id, and the engine refuses the checkpoint of
   an attempt that lost its claim. So an agents process that froze before its checkpoint charges nothing when it wakes up.
   If it froze after the checkpoint, it charges an intent whose id the next attempt knows.
3. Each later attempt first looks for intents, by the checkpointed id and by search. It adopts a charged intent, uses an
   open one, and creates a new one only if every known one is cancelled, or was charged and given back in full. So at most one
   intent of an order can be charged at a time.
4. The undo step cancels every open intent that it finds and refunds every charged one. Any intent that a frozen attempt
   may still confirm has its id in the checkpoint (2), so it is cancelled and Stripe refuses the late confirmation (1).
   The undo step may leave an intent that was created and never checkpointed: no attempt will confirm it.
5. After a refusal the agent cancels the intent before it reports "permanent, nothing done", for the same reason.
6. An intent that waits for its customer is open (4): the undo step cancels it, and its bank's page then charges nothing
   (`payment_action`).

The agent writes every operation into the effect ledger before it calls. A confirmation's row names its intent. (2) and (4)
rely on these rows: the ledger keeps the ids of all generations, the checkpoint only the newest. If the database lost its
last transactions in a failover, Stripe's own list still shows the intents.

Keys are `K:<operation>`, where K is the step's idempotency key. Stripe replays the first answer under a key, server errors
included. So after an unknown outcome the agent looks first and adopts what it finds. It repeats an operation that
certainly had no effect under `K:<operation>:<attempt>`, a key that has no stored answer yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.utils.translation import gettext as _

from orders.agents import payment_capture, payment_part, payment_transfer
from orders.agents.payment_action import CONFIRM, CREATE, Action
from orders.agents.payment_calls import SERVICE
from orders.agents.payment_undo import CANCEL, Undo
from orders.gateways import payment
from orders.gateways.money import NoSuchAmount, from_minor, to_minor
from orders.gateways.payment import ACTION, CANCELLED, PAID, RESERVED, Declined, Intent, Rejected
from orders.payments import codes
from orders.returns.codes import PAID_OUT
from orders.returns.codes import REFUND as RETURN_STEP
from supervision import Agent, EffectOutcome, Intention, Operation, OutcomeUnknown, PermanentFailure, StepRequest

_FRESH_INTENTS = 2  # intents that one attempt may use; more means that another process cancels them meanwhile


class PaymentAgent(Agent):
    """Charges and refunds through Stripe's API."""

    name = codes.AGENT
    signals = (codes.ANSWERED, codes.TRANSFER, PAID_OUT)
    evidence = (codes.TRANSFER,)

    def opens_with(self, request: StepRequest) -> Intention | None:
        """The creation of an intent under the step's own key, or the capture; None for a bank transfer and for a return."""
        if _captures(request):
            return None if _transferred(request) else payment_capture.first_call(request, _due(request))
        if request.step == RETURN_STEP or _by_transfer(request):
            return None
        return Intention(CREATE, f"{request.idempotency_key}:{CREATE}", SERVICE)

    def perform(self, request: StepRequest) -> Mapping[str, Any]:
        """Charge or reserve the order's total once: `{"intent", "amount", "currency"}`, or what a transfer or a return gives."""
        if request.step == RETURN_STEP:
            return payment_part.perform(request)
        if _captures(request):
            if _transferred(request):
                return {"method": codes.BANK_TRANSFER}  # the money came by transfer before
            capture = payment_capture.Capture(request, _due(request))
            return capture.told(capture.run)
        if _by_transfer(request):
            paid = _closed_cards(request)
            return paid or payment_transfer.perform(request)
        charge = _Charge(request)
        return charge.told(charge.run)

    def compensate(self, request: StepRequest) -> Mapping[str, Any]:
        """Make sure that the customer pays nothing for the order; `{"cancelled": [ids], "refunded": [ids]}`."""
        if request.step == RETURN_STEP:
            return payment_part.compensate(request)
        undo = Undo(request)
        undone = undo.told(undo.run)
        return undone if _paid_by_card(request) else {**payment_transfer.compensate(request), **undone}


def _captures(request: StepRequest) -> bool:
    """Whether this attempt charges what is reserved. If that has lapsed, and the order is paid again, it charges at once."""
    lapsed = request.checkpoint_data.get(codes.LAPSED)
    return request.step == codes.CAPTURE and lapsed != payment_capture.reserved_by(request)


def _transferred(request: StepRequest) -> bool:
    """Whether the order was paid by bank transfer in the step that would have reserved the money."""
    return codes.by_transfer(request.results.get(codes.AUTHORISE) or {})


def _due(request: StepRequest) -> int:
    return minor_units(str(request.payload["total"]), str(request.payload["currency"]))


def _by_transfer(request: StepRequest) -> bool:
    return bool(request.payload["payment_method"] == codes.BANK_TRANSFER)


def _paid_by_card(request: StepRequest) -> bool:
    """Whether no bank transfer was ever told to the order, nor written as this step's result by hand."""
    by_hand = "received" in (request.performed or {})
    return not (_by_transfer(request) or by_hand or codes.TRANSFERS in request.checkpoint_data or request.untaken(codes.TRANSFER))


def _closed_cards(request: StepRequest) -> dict[str, Any] | None:
    """Close what an earlier attempt may still charge to a card; the result if a card was charged after all."""
    if not any(one.service == SERVICE and one.may_exist for one in request.effects()):
        return None
    charge = _Charge(request)
    return charge.told(charge.close_all)


def minor_units(total: str, currency: str) -> int:
    """An amount of money in Stripe's minor units. Raises PermanentFailure if Stripe has no such amount."""
    try:
        return to_minor(total, currency)
    except NoSuchAmount:
        raise PermanentFailure(_("%(total)s %(currency)s cannot be charged.") % {"total": total, "currency": currency}) from None


class _Charge(Action):
    """One attempt to charge one order."""

    def __init__(self, request: StepRequest) -> None:
        super().__init__(request)
        payload = request.payload
        self.currency = str(payload["currency"])
        self.amount = minor_units(str(payload["total"]), self.currency)
        self.method = str(payload["payment_method"])
        if request.step == codes.AUTHORISE:
            self.reached = frozenset({PAID, RESERVED})
        self.noted = request.checkpoint_data.get("intent")
        self.spent = False  # whether the intent made under K:create is cancelled by now, or given back
        self.confirmed: dict[str, str] = {}  # intents by the keys of their confirmations

    def run(self) -> dict[str, Any]:
        request = self.request
        opening = request.intend(CREATE, key=f"{request.idempotency_key}:{CREATE}", service=SERVICE)
        intent = None
        if request.attempt > 1 or request.generation > 1 or self.noted:
            intent = self.found()
            if intent is not None or self.spent:
                self.not_created(opening, intent)
        if request.wait_left is not None:  # the step has waited: it hears the end of that payment, and begins no other one
            return self.result(self.heard(intent))
        for _fresh in range(_FRESH_INTENTS):
            if intent is None:
                intent = self.create()
            if intent.confirmable:
                intent = self.confirm(intent)
            if intent.status == ACTION:
                intent = self.heard(self.get(intent.id))  # read again, because an answer under a key may be an old one
            if intent.status in self.reached:
                return self.result(intent)
            if intent.status != CANCELLED:
                raise OutcomeUnknown(_("The payment service is still working on the payment (%(state)s).") % {"state": intent.status})
            self.spent, intent = True, None
        raise OutcomeUnknown(_("The payment was cancelled while it was being made."))

    def close_all(self) -> dict[str, Any] | None:
        """Cancel every open intent of the order; the result if one is charged."""
        intents = self.known(self.noted)
        closed = [self.close(one, f"cancel:{one.id}") if one.live else one for one in intents]
        self.learn(closed)
        self.learn_creations(closed)
        for each in closed:
            if each.status == CANCELLED:
                self.settle_of(each, EffectOutcome.UNDONE)
        if paid := self.paid(closed):
            return self.result(paid)
        if pending := [one for one in closed if one.status not in (PAID, CANCELLED)]:
            raise OutcomeUnknown(_("The payment service is still working on the payment (%(state)s).") % {"state": pending[0].status})
        return None

    def result(self, intent: Intent) -> dict[str, Any]:
        if intent.status == RESERVED:
            self.settle_of(intent, EffectOutcome.DONE)
        return {"intent": intent.id, "amount": intent.amount, "currency": self.currency}

    def found(self) -> Intent | None:
        """An intent of earlier attempts that is charged or can be charged. At most one is left open."""
        intents = self.known(self.noted)
        self.learn(intents)
        self.learn_creations(intents, f"{self.request.idempotency_key}:{CREATE}")
        self.confirmed = {one.key: one.external_id for one in self.before if one.operation == CONFIRM}
        self.spent = any(one.status in (PAID, CANCELLED) and one.step_key == self.request.idempotency_key for one in intents)
        if paid := self.paid(intents):
            return paid
        pending = [one for one in intents if one.status not in (PAID, CANCELLED) and not one.live]
        if pending:
            return pending[0]
        usable = [one for one in intents if one.live]
        if len(usable) == 1 and self.serves(usable[0]):
            return usable[0]
        closed = [self.close(one, f"cancel:{one.id}") for one in usable]
        for one in closed:
            if one.status == CANCELLED:
                self.settle_of(one, EffectOutcome.UNDONE)
        self.spent = self.spent or bool(closed)
        return self.paid(closed)

    def not_created(self, opening: Operation, intent: Intent | None) -> None:
        """Settle the opening row: this attempt creates nothing under K:create, so the row gets the result of earlier attempts."""
        if intent is not None and intent.step_key == self.request.idempotency_key:
            opening.settle(EffectOutcome.DONE, intent.id)
        elif opening.outcome is EffectOutcome.INTENDED:
            opening.settle(EffectOutcome.REFUSED)
        else:
            opening.settle(EffectOutcome.UNDONE if self.spent else opening.outcome)

    def settle_of(self, intent: Intent, outcome: EffectOutcome) -> None:
        """Settle what earlier attempts may have done to this intent."""
        for one in self.before:
            if one.direction == "do" and one.external_id == intent.id and one.operation in (CREATE, CONFIRM) and one.may_exist:
                one.settle(outcome)

    def paid(self, intents: list[Intent]) -> Intent | None:
        """The charged intent among these that was not refunded in full."""
        for intent in intents:
            if intent.status == PAID and self.refunded(intent) < intent.amount:
                if self.fits(intent):
                    return intent
                raise OutcomeUnknown(_("The order has a payment of another amount: %(intent)s.") % {"intent": intent.id})
        return None

    def serves(self, intent: Intent) -> bool:
        """Whether this open intent can go on to be the order's payment."""
        can_end = intent.status != RESERVED or RESERVED in self.reached
        return can_end and self.fits(intent) and not self.asked_for_another_method(intent)

    def fits(self, intent: Intent) -> bool:
        """Whether this intent is for the order's total."""
        return intent.amount == self.amount and intent.currency.upper() == self.currency.upper()

    def create(self) -> Intent:
        request = self.request

        def call(key: str) -> Intent:
            return payment.create(
                amount=self.amount,
                currency=self.currency,
                order=request.run_key,
                step_key=request.idempotency_key,
                key=key,
                reserve=RESERVED in self.reached,
            )

        def look() -> Intent | None:
            # Never what was charged and given back: the search may show that one before the new one.
            mine = [one for one in self.of_order() if one.step_key == request.idempotency_key and self.fits(one)]
            return next((one for one in mine if one.status not in (PAID, CANCELLED)), None) or self.paid(mine)

        operation = f"{CREATE}:{request.attempt}" if self.spent else CREATE
        row = request.intend(CREATE, key=f"{request.idempotency_key}:{operation}", service=SERVICE)
        try:
            intent = self.once(operation, call, look)
        except Rejected as problem:
            row.settle(EffectOutcome.REFUSED)
            raise PermanentFailure(
                _("The payment service refuses the payment: %(reason)s") % {"reason": problem},
                code=codes.PAYMENT_REFUSED,
                public_message=_("Your payment could not be made."),
            ) from problem
        row.settle(EffectOutcome.DONE, intent.id)
        self.before.append(row)
        return intent

    def confirm(self, intent: Intent) -> Intent:
        """Charge an open intent and return it as it is then. Its id is committed before money can move."""
        request, operation = self.request, CONFIRM
        if self.confirmed.get(f"{request.idempotency_key}:{CONFIRM}", intent.id) != intent.id:
            operation = f"{CONFIRM}:{intent.id}"  # the first confirmation's row keeps the id of its own intent
        key = f"{request.idempotency_key}:{operation}"
        self.confirmed[key] = intent.id
        charge = request.intend(
            CONFIRM,
            key=key,
            service=SERVICE,
            amount=None if RESERVED in self.reached else from_minor(intent.amount, intent.currency),
            currency=None if RESERVED in self.reached else self.currency,
            external_id=intent.id,
            checkpoint={"intent": intent.id} if self.noted != intent.id else None,
        )
        self.noted = intent.id

        def call(key: str) -> Intent:
            back = f"{settings.PUBLIC_URL}/orders/{request.run_key}/"
            return payment.confirm(intent.id, payment_method=self.method, key=key, return_url=back)

        def look() -> Intent | None:
            now = self.get(intent.id)
            if now.confirmable and now.refusal and not intent.refusal:
                raise Declined(now.refusal)  # the lost answer was this refusal
            return None if now.confirmable else now

        try:
            confirmed = self.once(operation, call, look)
        except Declined as problem:
            public = _("Your card was declined. Please use another one.")
            return self.refuse(charge, intent, str(problem), public, codes.CARD_DECLINED, CANCEL)
        except Rejected as problem:
            return self.refuse(charge, intent, str(problem), _("Your payment method was not accepted."), codes.PAYMENT_REFUSED, CANCEL)
        if confirmed.status == ACTION:
            self.before.append(charge)
        if confirmed.status == CANCELLED or confirmed.status in self.reached:
            charge.settle(EffectOutcome.REFUSED if confirmed.status == CANCELLED else EffectOutcome.DONE)
        return confirmed
