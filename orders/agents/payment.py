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

Keys are `K:<operation>` with K the step's idempotency key. The service replays the first answer under a key, server
errors included; so after an unknown outcome the agent looks, adopts what it finds, and repeats what certainly had no
effect under `K:<operation>:<attempt>`, a key that has no stored answer yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from django.utils.translation import gettext as _

from orders.agents.payment_calls import Calls
from orders.gateways import payment
from orders.gateways.payment import CANCELLED, PAID, Declined, Intent, Rejected
from supervision import Agent, OutcomeUnknown, PermanentFailure, StepRequest

_NO_DECIMALS = frozenset(["BIF", "CLP", "DJF", "GNF", "JPY", "KMF", "KRW", "MGA", "PYG", "RWF", "UGX", "VND", "VUV", "XAF", "XOF", "XPF"])
_THREE_DECIMALS = frozenset(["BHD", "JOD", "KWD", "OMR", "TND"])
_FRESH_INTENTS = 2  # intents one attempt may go through; more means that somebody cancels under our hands


class PaymentAgent(Agent):
    """Charges and refunds through Stripe's API."""

    name = "payment"

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
    digits = 0 if currency.upper() in _NO_DECIMALS else 3 if currency.upper() in _THREE_DECIMALS else 2
    try:
        scaled = Decimal(total).scaleb(digits)
        whole = scaled > 0 and scaled == scaled.to_integral_value()
    except InvalidOperation:
        whole = False
    if not whole:
        raise PermanentFailure(_("%(total)s %(currency)s cannot be charged.") % {"total": total, "currency": currency})
    return int(scaled)


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

    def run(self) -> dict[str, Any]:
        request = self.request
        intent = self.found() if request.attempt > 1 or request.generation > 1 or self.noted else None
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

        try:
            return self.once(f"create:{request.attempt}" if self.spent else "create", call, look)
        except Rejected as problem:
            raise PermanentFailure(
                _("The payment service refuses the payment: %(reason)s") % {"reason": problem},
                code="payment_refused",
                public_message=_("Your payment could not be made."),
            ) from problem

    def confirm(self, intent: Intent) -> Intent:
        """Charge an open intent; gives it charged or cancelled. Its id is durable before money can move."""
        request = self.request
        if self.noted != intent.id:
            request.checkpoint(**{**request.checkpoint_data, "intent": intent.id})
            self.noted = intent.id

        def call(key: str) -> Intent:
            return payment.confirm(intent.id, payment_method=self.method, key=key)

        def look() -> Intent | None:
            now = self.get(intent.id)
            if now.live and now.refusal and not intent.refusal:
                raise Declined(now.refusal)  # the answer that was lost
            return None if now.live and now.status != "requires_action" else now

        try:
            confirmed = self.once("confirm", call, look)
        except Declined as problem:
            return self.refuse(intent, str(problem), _("Your card was declined. Please use another one."), "card_declined")
        except Rejected as problem:
            return self.refuse(intent, str(problem), _("Your payment method was not accepted."), "payment_refused")
        if confirmed.status == "requires_action":
            reason = _("the bank asks for the customer's confirmation, which cannot be given here")
            return self.refuse(intent, reason, _("Your bank asks for a confirmation. Please use another card."), "action_required")
        return confirmed

    def refuse(self, intent: Intent, reason: str, public: str, code: str) -> Intent:
        """Cancel the refused intent and say so; gives it back only where it turns out to be charged after all."""
        closed = self.close(intent)
        if closed.status == PAID:
            return closed
        raise PermanentFailure(_("Payment refused: %(reason)s") % {"reason": reason}, code=code, public_message=public)


class _Undo(Calls):
    """One attempt to undo whatever was charged for one order."""

    def run(self) -> dict[str, Any]:
        performed = (self.request.performed or {}).get("intent")
        intents = self.known(performed, self.request.checkpoint_data.get("intent"))
        cancelled, refunded = [], []
        for place, intent in enumerate(one for one in intents if one.status != CANCELLED):
            suffix = f":{intent.id}" if place else ""
            closed = self.close(intent, f"cancel{suffix}") if intent.live else intent
            if closed.status == CANCELLED:
                cancelled.append(intent.id)
            elif closed.status == PAID:
                self.refund(closed, f"refund{suffix}")
                refunded.append(intent.id)
            else:
                raise OutcomeUnknown(_("The payment service is still working on the payment (%(state)s).") % {"state": closed.status})
        return {"cancelled": cancelled, "refunded": refunded}

    def refund(self, intent: Intent, operation: str) -> None:
        def whole() -> bool | None:
            return self.refunded(intent) >= intent.amount or None

        def call(key: str) -> bool:
            payment.refund(intent.id, key=key)
            return True

        if not whole():
            self.once(operation, call, whole)
