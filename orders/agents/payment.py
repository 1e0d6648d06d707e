"""Charges an order once, and gives the money back.

Used by the `charge-payment` step. Charging is two calls: creating an intent moves no money; its id is checkpointed;
then it is confirmed. Why an order is never charged twice, and never charged after it was undone:

1. Stripe charges an intent once, and a cancelled one never.
2. Nobody confirms an intent whose id is not checkpointed, and a checkpoint is refused to whoever lost the claim. So a
   worker that froze before its checkpoint charges nothing when it wakes, and one that froze after it charges an intent
   that everybody knows.
3. Whoever goes on looks first, by the checkpointed id and by search: a charged intent is adopted, an open one is used,
   and a new one is made only when every known one is cancelled. So at most one intent of an order can be charged.
4. Undoing cancels every open intent it can find and refunds every charged one. The id of any intent that somebody may
   still be about to confirm is in the checkpoint (2), so its late confirmation is refused (1). An intent that was
   created and never checkpointed is left alone: nobody will ever confirm it.
5. After a refusal the intent is cancelled before the step says "permanent, nothing done", for the same reason.

Every operation is in the effect ledger before it is called; a confirmation's row names its intent, and is what (2) and (4)
rest on: the ledger keeps the ids of all generations, where the checkpoint has the newest. Whatever it may have lost with
a database's last transactions, Stripe's own list still shows.

Keys are `K:<operation>` with K the step's idempotency key. The service replays the first answer under a key, server
errors included; so after an unknown outcome the agent looks, adopts what it finds, and repeats what certainly had no
effect under `K:<operation>:<attempt>`, a key that has no stored answer yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from django.utils.translation import gettext as _

from orders.agents.payment_calls import SERVICE, Calls
from orders.gateways import payment
from orders.gateways.money import NoSuchAmount, from_minor, to_minor
from orders.gateways.payment import CANCELLED, PAID, Declined, Intent, Rejected
from supervision import Agent, EffectOutcome, Intention, Operation, OutcomeUnknown, PermanentFailure, StepRequest

FOR_THE_CUSTOMER = ("card_declined", "action_required")  # another card, or the bank's confirmation, mends these
CREATE, CONFIRM, CANCEL, REFUND = "create", "confirm", "cancel", "refund"
_FRESH_INTENTS = 2  # intents one attempt may go through; more means that somebody cancels under our hands


class PaymentAgent(Agent):
    """Charges and refunds through Stripe's API."""

    name = "payment"

    def opens_with(self, request: StepRequest) -> Intention:
        """The creation of an intent under the step's own key."""
        return Intention(CREATE, f"{request.idempotency_key}:{CREATE}", SERVICE)

    def perform(self, request: StepRequest) -> Mapping[str, Any]:
        """Charge the order's total once; `{"intent", "amount", "currency"}`."""
        charge = _Charge(request)
        return charge.told(charge.run)

    def compensate(self, request: StepRequest) -> Mapping[str, Any]:
        """See to it that the order is charged nothing; `{"cancelled": [ids], "refunded": [ids]}`."""
        undo = _Undo(request)
        return undo.told(undo.run)


def minor_units(total: str, currency: str) -> int:
    """An amount of money as Stripe counts it. Raises PermanentFailure where there is no such amount."""
    try:
        return to_minor(total, currency)
    except NoSuchAmount:
        raise PermanentFailure(_("%(total)s %(currency)s cannot be charged.") % {"total": total, "currency": currency}) from None


class _Charge(Calls):
    """One attempt to charge one order."""

    def __init__(self, request: StepRequest) -> None:
        super().__init__(request)
        payload = request.payload
        self.currency = str(payload["currency"])
        self.amount = minor_units(str(payload["total"]), self.currency)
        self.method = str(payload["payment_method"])
        self.noted = request.checkpoint_data.get("intent")
        self.spent = False  # K:create gave an intent that is cancelled by now
        self.confirmed: dict[str, str] = {}  # keys of confirmations: the intents they are for

    def run(self) -> dict[str, Any]:
        request = self.request
        opening = request.intend(CREATE, key=f"{request.idempotency_key}:{CREATE}", service=SERVICE)
        intent = None
        if request.attempt > 1 or request.generation > 1 or self.noted:
            intent = self.found()
            if intent is not None or self.spent:
                self.not_created(opening, intent)
        for _fresh in range(_FRESH_INTENTS):
            if intent is None:
                intent = self.create()
            if intent.live:
                intent = self.confirm(intent)
            if intent.status == PAID:
                return {"intent": intent.id, "amount": intent.amount, "currency": self.currency}
            if intent.status != CANCELLED:
                raise OutcomeUnknown(_("The payment service is still working on the payment (%(state)s).") % {"state": intent.status})
            self.spent, intent = True, None
        raise OutcomeUnknown(_("The payment was cancelled while it was being made."))

    def found(self) -> Intent | None:
        """What earlier attempts left: a charged intent, or one that can be charged. Leaves at most one open."""
        intents = self.known(self.noted)
        self.learn(intents)
        self.confirmed = {one.key: one.external_id for one in self.before if one.operation == CONFIRM}
        self.spent = any(one.status == CANCELLED and one.step_key == self.request.idempotency_key for one in intents)
        if paid := self.paid(intents):
            return paid
        pending = [one for one in intents if one.status not in (PAID, CANCELLED) and not one.live]
        if pending:
            return pending[0]
        usable = [one for one in intents if one.live]
        if len(usable) == 1 and self.fits(usable[0]):
            return usable[0]
        closed = [self.close(one, f"cancel:{one.id}") for one in usable]
        self.spent = self.spent or bool(closed)
        return self.paid(closed)

    def not_created(self, opening: Operation, intent: Intent | None) -> None:
        """This attempt creates nothing under K:create: its row says what is known of earlier attempts."""
        if intent is not None and intent.step_key == self.request.idempotency_key:
            opening.settle(EffectOutcome.DONE, intent.id)
        elif opening.outcome is EffectOutcome.INTENDED:
            opening.settle(EffectOutcome.REFUSED)
        else:
            opening.settle(EffectOutcome.UNDONE if self.spent else opening.outcome)

    def paid(self, intents: list[Intent]) -> Intent | None:
        """The charged intent among these that was not refunded since."""
        for intent in intents:
            if intent.status == PAID and self.refunded(intent) < intent.amount:
                if self.fits(intent):
                    return intent
                raise OutcomeUnknown(_("The order has a payment of another amount: %(intent)s.") % {"intent": intent.id})
        return None

    def fits(self, intent: Intent) -> bool:
        """Whether this intent is for the order's total."""
        return intent.amount == self.amount and intent.currency.upper() == self.currency.upper()

    def create(self) -> Intent:
        request = self.request

        def call(key: str) -> Intent:
            return payment.create(
                amount=self.amount, currency=self.currency, order=request.run_key, step_key=request.idempotency_key, key=key
            )

        def look() -> Intent | None:
            return next((one for one in self.of_order() if one.status != CANCELLED and self.fits(one)), None)

        operation = f"{CREATE}:{request.attempt}" if self.spent else CREATE
        row = request.intend(CREATE, key=f"{request.idempotency_key}:{operation}", service=SERVICE)
        try:
            intent = self.once(operation, call, look)
        except Rejected as problem:
            row.settle(EffectOutcome.REFUSED)
            raise PermanentFailure(
                _("The payment service refuses the payment: %(reason)s") % {"reason": problem},
                code="payment_refused",
                public_message=_("Your payment could not be made."),
            ) from problem
        row.settle(EffectOutcome.DONE, intent.id)
        return intent

    def confirm(self, intent: Intent) -> Intent:
        """Charge an open intent; gives it charged or cancelled. Its id is durable before money can move."""
        request, operation = self.request, CONFIRM
        if self.confirmed.get(f"{request.idempotency_key}:{CONFIRM}", intent.id) != intent.id:
            operation = f"{CONFIRM}:{intent.id}"  # the row of the first one keeps its id
        key = f"{request.idempotency_key}:{operation}"
        self.confirmed[key] = intent.id
        charge = request.intend(
            CONFIRM,
            key=key,
            service=SERVICE,
            amount=from_minor(intent.amount, intent.currency),
            currency=self.currency,
            external_id=intent.id,
            checkpoint={"intent": intent.id} if self.noted != intent.id else None,
        )
        self.noted = intent.id

        def call(key: str) -> Intent:
            return payment.confirm(intent.id, payment_method=self.method, key=key)

        def look() -> Intent | None:
            now = self.get(intent.id)
            if now.live and now.refusal and not intent.refusal:
                raise Declined(now.refusal)  # the answer that was lost
            return None if now.live and now.status != "requires_action" else now

        try:
            confirmed = self.once(operation, call, look)
        except Declined as problem:
            return self.refuse(charge, intent, str(problem), _("Your card was declined. Please use another one."), "card_declined")
        except Rejected as problem:
            return self.refuse(charge, intent, str(problem), _("Your payment method was not accepted."), "payment_refused")
        if confirmed.status == "requires_action":
            reason = _("the bank asks for the customer's confirmation, which cannot be given here")
            return self.refuse(charge, intent, reason, _("Your bank asks for a confirmation. Please use another card."), "action_required")
        if confirmed.status in (PAID, CANCELLED):
            charge.settle(EffectOutcome.DONE if confirmed.status == PAID else EffectOutcome.REFUSED)
        return confirmed

    def refuse(self, charge: Operation, intent: Intent, reason: str, public: str, code: str) -> Intent:
        """Cancel the refused intent and say so; gives it back only where it turns out to be charged after all."""
        closed = self.close(intent)
        if closed.status == PAID:
            charge.settle(EffectOutcome.DONE)
            return closed
        charge.settle(EffectOutcome.REFUSED)
        text = _("Payment refused: %(reason)s") % {"reason": reason}
        raise PermanentFailure(text, code=code, public_message=public, for_customer=code in FOR_THE_CUSTOMER)


class _Undo(Calls):
    """One attempt to undo whatever was charged for one order."""

    def run(self) -> dict[str, Any]:
        performed = (self.request.performed or {}).get("intent")
        intents = self.known(performed, self.request.checkpoint_data.get("intent"))
        cancelled, refunded = [], []
        for place, intent in enumerate(one for one in intents if one.status != CANCELLED):
            suffix = f":{intent.id}" if place else ""
            closed = self.cancel(intent, f"{CANCEL}{suffix}") if intent.live else intent
            if closed.status == CANCELLED:
                cancelled.append(intent.id)
            elif closed.status == PAID:
                self.refund(closed, f"{REFUND}{suffix}")
                refunded.append(intent.id)
            else:
                raise OutcomeUnknown(_("The payment service is still working on the payment (%(state)s).") % {"state": closed.status})
        for one in self.before:
            if one.direction == "do" and one.outcome is not EffectOutcome.REFUSED:
                one.settle(EffectOutcome.UNDONE)
        return {"cancelled": cancelled, "refunded": refunded}

    def cancel(self, intent: Intent, operation: str) -> Intent:
        """Cancel an open intent; gives it cancelled, or charged where somebody was faster."""
        row = self.row(CANCEL, operation, intent)
        closed = self.close(intent, operation)
        row.settle(EffectOutcome.DONE if closed.status == CANCELLED else EffectOutcome.REFUSED)
        return closed

    def refund(self, intent: Intent, operation: str) -> None:
        """See to it that everything is on its way back. What a stored answer says is looked at: a refund may have failed since."""

        def missing() -> int:
            return intent.amount - self.refunded(intent)

        def call(key: str) -> str:
            return payment.refund(intent.id, key=key)

        if (left := missing()) <= 0:
            return
        for name in (operation, f"{operation}:{self.request.attempt}:again"):
            row = self.row(REFUND, name, intent, from_minor(left, intent.currency))
            refund = self.once(name, call, lambda: "" if missing() <= 0 else None)
            if missing() <= 0:
                row.settle(EffectOutcome.DONE, refund or row.external_id)
                return
            row.settle(EffectOutcome.REFUSED)  # the key gave the answer of a refund that has failed since
        raise OutcomeUnknown(_("The payment service does not give the money back."))

    def row(self, kind: str, operation: str, intent: Intent, amount: Decimal | None = None) -> Operation:
        """The ledger's row of what is about to be done to this intent."""
        return self.request.intend(
            kind,
            key=f"{self.request.idempotency_key}:{operation}",
            service=SERVICE,
            amount=amount,
            currency=intent.currency.upper() if amount is not None else None,
            external_id=intent.id,
        )
