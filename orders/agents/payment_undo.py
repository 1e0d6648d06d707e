"""Undoes the charges of one order: cancels every open payment and refunds every charged one. `payment` says why that is safe.

A cancelled payment releases what it has reserved. Both steps of an order that reserves at the checkout do the same: the one that
is undone first finds something to undo, and the other one nothing, or what has succeeded too late.

A result by hand may name a payment that was made for another order. The undo leaves that one alone, undoes the order's own
payments, and then stops for an operator.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from django.utils.translation import gettext as _

from orders.agents.payment_calls import SERVICE, Calls, foreign
from orders.gateways import payment
from orders.gateways.money import from_minor
from orders.gateways.payment import CANCELLED, PAID, Intent
from supervision import EffectOutcome, Operation, OutcomeUnknown, StepRequest

CANCEL, REFUND = "cancel", "refund"


class Undo(Calls):
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
            if one.direction == "do" and one.service == SERVICE and one.outcome is not EffectOutcome.REFUSED:
                one.settle(EffectOutcome.UNDONE)
        self.learn_undone(intents)
        if self.foreign:
            raise foreign(self.foreign[0])
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
            return intent.received - self.refunded(intent)

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
