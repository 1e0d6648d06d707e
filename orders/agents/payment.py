"""Charges an order once, and gives the money back.

Used by the `charge-payment` step. Charging takes two calls. Creating an intent moves no money. The agent checkpoints the
intent's id and then confirms it. Why an order is never charged twice, and never charged after it was undone:

1. Stripe charges an intent at most once, and never charges a cancelled one.
2. An attempt confirms an intent only after it has checkpointed the intent's id, and the engine refuses the checkpoint of
   an attempt that lost its claim. So an agents process that froze before its checkpoint charges nothing when it wakes up.
   If it froze after the checkpoint, it charges an intent whose id the next attempt knows.
3. Each later attempt first looks for intents, by the checkpointed id and by search. It adopts a charged intent, uses an
   open one, and creates a new one only if every known one is cancelled. So at most one intent of an order can be charged.
4. The undo step cancels every open intent that it finds and refunds every charged one. Any intent that a frozen attempt
   may still confirm has its id in the checkpoint (2), so it is cancelled and Stripe refuses the late confirmation (1).
   The undo step may leave an intent that was created and never checkpointed: no attempt will confirm it.
5. After a refusal the agent cancels the intent before it reports "permanent, nothing done", for the same reason.

The agent writes every operation into the effect ledger before it calls. A confirmation's row names its intent. (2) and (4)
rely on these rows: the ledger keeps the ids of all generations, the checkpoint only the newest. If the database lost its
last transactions in a failover, Stripe's own list still shows the intents.

Keys are `K:<operation>`, where K is the step's idempotency key. Stripe replays the first answer under a key, server errors
included. So after an unknown outcome the agent looks first and adopts what it finds. It repeats an operation that
certainly had no effect under `K:<operation>:<attempt>`, a key that has no stored answer yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from django.utils.translation import gettext as _

from orders.agents.payment_calls import SERVICE, Calls
from orders.gateways import payment
from orders.gateways.money import NoSuchAmount, from_minor, to_minor
from orders.gateways.payment import CANCELLED, PAID, Declined, Intent, Rejected
from supervision import Agent, EffectOutcome, Intention, Operation, OutcomeUnknown, PermanentFailure, StepRequest

FOR_THE_CUSTOMER = ("card_declined", "action_required")  # the customer can solve these: another card, or the bank's confirmation
CREATE, CONFIRM, CANCEL, REFUND = "create", "confirm", "cancel", "refund"
_FRESH_INTENTS = 2  # intents that one attempt may use; more means that another process cancels them meanwhile


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
        """Make sure that the customer pays nothing for the order; `{"cancelled": [ids], "refunded": [ids]}`."""
        undo = _Undo(request)
        return undo.told(undo.run)


def minor_units(total: str, currency: str) -> int:
    """An amount of money in Stripe's minor units. Raises PermanentFailure if Stripe has no such amount."""
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
        self.spent = False  # whether the intent made under K:create is cancelled by now
        self.confirmed: dict[str, str] = {}  # intents by the keys of their confirmations

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
        """An intent of earlier attempts that is charged or can be charged. At most one is left open."""
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
        """Settle the opening row: this attempt creates nothing under K:create, so the row gets the result of earlier attempts."""
        if intent is not None and intent.step_key == self.request.idempotency_key:
            opening.settle(EffectOutcome.DONE, intent.id)
        elif opening.outcome is EffectOutcome.INTENDED:
            opening.settle(EffectOutcome.REFUSED)
        else:
            opening.settle(EffectOutcome.UNDONE if self.spent else opening.outcome)

    def paid(self, intents: list[Intent]) -> Intent | None:
        """The charged intent among these that was not refunded in full."""
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
                raise Declined(now.refusal)  # the lost answer was this refusal
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
        """Cancel the refused intent and raise PermanentFailure; return the intent only if it was charged after all."""
        closed = self.close(intent)
        if closed.status == PAID:
            charge.settle(EffectOutcome.DONE)
            return closed
        charge.settle(EffectOutcome.REFUSED)
        text = _("Payment refused: %(reason)s") % {"reason": reason}
        raise PermanentFailure(text, code=code, public_message=public, for_customer=code in FOR_THE_CUSTOMER)


class _Undo(Calls):
    """One attempt to undo every charge of one order."""

    def __init__(self, request: StepRequest) -> None:
        super().__init__(request)
        self.called: set[str] = set()  # the keys of this attempt's operations

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
        self.learn_undone(intents)
        return {"cancelled": cancelled, "refunded": refunded}

    def learn_undone(self, intents: Sequence[Intent]) -> None:
        """Settle the rows that earlier undo attempts left open, by what the service shows now."""
        now = {one.id: one.status for one in intents}
        ours = {one.external_id for one in self.before}
        for one in self.before:
            if one.direction != "undo" or one.key in self.called or one.outcome not in (EffectOutcome.INTENDED, EffectOutcome.UNKNOWN):
                continue
            if one.operation == CANCEL:
                one.settle(EffectOutcome.DONE if now.get(one.external_id) == CANCELLED else EffectOutcome.REFUSED)
                continue
            made = [refund.id for refund in self.refunds(one.external_id) if refund.gives_back and refund.id not in ours]
            one.settle(EffectOutcome.DONE if made else EffectOutcome.REFUSED, made[0] if made else "")
            ours.update(made[:1])

    def cancel(self, intent: Intent, operation: str) -> Intent:
        """Cancel an open intent and return it: cancelled, or charged if a confirmation came first."""
        row = self.row(CANCEL, operation, intent)
        closed = self.close(intent, operation)
        row.settle(EffectOutcome.DONE if closed.status == CANCELLED else EffectOutcome.REFUSED)
        return closed

    def refund(self, intent: Intent, operation: str) -> None:
        """Refund the intent in full. The refunds are checked after each call: a refund in a replayed answer may have failed since."""

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
            row.settle(EffectOutcome.REFUSED)  # the key replayed the answer of a refund that has failed since
        raise OutcomeUnknown(_("The payment service does not give the money back."))

    def row(self, kind: str, operation: str, intent: Intent, amount: Decimal | None = None) -> Operation:
        """Write the ledger's row of the next operation on this intent."""
        key = f"{self.request.idempotency_key}:{operation}"
        self.called.add(key)
        return self.request.intend(
            kind,
            key=key,
            service=SERVICE,
            amount=amount,
            currency=intent.currency.upper() if amount is not None else None,
            external_id=intent.id,
        )
