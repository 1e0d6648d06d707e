"""Charges what an order has reserved, once its goods are booked: the step `capture-payment`.

The step `authorise-payment` has reserved the order's total and names the intent in its result. Stripe captures an intent at most
once, and never a cancelled one. So:

1. Each attempt writes the capture into the effect ledger before it calls, and the engine refuses that to an attempt that lost
   its claim. Each attempt looks at the intent first. A charged one completes the step, and one of another order is refused.
2. The undo step (`payment_undo`) cancels the intent, which releases what is reserved, or gives back what was captured. A frozen
   attempt that calls afterwards captures nothing, because the intent is cancelled or was captured before.
3. What is reserved lapses after some days; or it was charged, and given back when the run went on from an earlier step. Then
   nothing is charged and the step is refused. The attempt notes in its checkpoint which intent lapsed before it says so. If the
   step runs again, because the customer or an operator pays again, it charges the payment method at once, as `charge-payment`
   does. An attempt that dies between its note and its refusal is repeated as such a charge: the customer has agreed to that amount
   at the checkout, and nothing else of it is charged.
"""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext as _

from orders.agents.payment_calls import SERVICE, Calls
from orders.gateways import payment
from orders.gateways.money import from_minor
from orders.gateways.payment import CANCELLED, PAID, Intent, Rejected
from orders.payments import codes
from supervision import EffectOutcome, Intention, OutcomeUnknown, PermanentFailure, StepRequest

CAPTURE = "capture"


def first_call(request: StepRequest, amount: int) -> Intention | None:
    """The capture, with which an attempt begins; None if nothing is reserved. amount: in minor units."""
    name, currency = reserved_by(request), str(request.payload["currency"])
    if not name:
        return None
    return Intention(CAPTURE, f"{request.idempotency_key}:{CAPTURE}", SERVICE, from_minor(amount, currency), currency, name)


def reserved_by(request: StepRequest) -> str:
    """The id of the intent that the order's checkout has reserved; empty for none."""
    return str((request.results.get(codes.AUTHORISE) or {}).get("intent") or "")


class Capture(Calls):
    """One attempt to charge what one order has reserved. amount: the order's total in minor units."""

    def __init__(self, request: StepRequest, amount: int) -> None:
        super().__init__(request)
        self.amount, self.currency = amount, str(request.payload["currency"])

    def run(self) -> dict[str, Any]:
        request = self.request
        first = first_call(request, self.amount)
        if first is None:
            reason = _("Nothing is reserved for this order: authorise-payment names no payment.")
            raise self.refusal(reason, "nothing_reserved")
        name, amount = first.external_id, first.amount
        row = request.intend(CAPTURE, key=first.key, service=SERVICE, amount=amount, currency=self.currency, external_id=name)
        try:
            captured, found = self.captured(name)
        except Rejected as problem:
            text = _("The payment service refuses to charge what is reserved: %(reason)s") % {"reason": problem}
            raise PermanentFailure(text, "capture_refused") from problem
        if captured.status == CANCELLED:
            row.settle(EffectOutcome.REFUSED)
            reason = _("What was reserved (%(intent)s) has lapsed, or was released at the payment service.") % {"intent": captured.id}
            raise self.refusal(reason, codes.AUTHORISATION_LAPSED)
        if found and self.refunded(captured) >= captured.received:
            row.settle(EffectOutcome.UNDONE)
            reason = _("What was reserved (%(intent)s) was charged before, and given back.") % {"intent": captured.id}
            raise self.refusal(reason, codes.AUTHORISATION_LAPSED)
        if captured.received != self.amount or captured.currency.upper() != self.currency.upper():
            raise OutcomeUnknown(_("The order has a payment of another amount: %(intent)s.") % {"intent": captured.id})
        row.settle(EffectOutcome.DONE)
        return {"intent": captured.id, "amount": captured.received, "currency": self.currency}

    def captured(self, name: str) -> tuple[Intent, bool]:
        """The intent after its capture, or cancelled; and whether it was found so, and not captured by this very call.

        It is looked at first: an earlier attempt may have captured it, and an operator may have written its id by hand. Raises
        PermanentFailure if it was made for another order.
        """
        seen: list[Intent] = []

        def ended() -> Intent | None:
            now = self.get(name)
            seen.extend([now] if now.status in (PAID, CANCELLED) else [])
            return seen[-1] if seen else None

        after = ended() or self.once(CAPTURE, lambda key: payment.capture(name, amount=self.amount, key=key), ended)
        return after, bool(seen)

    def refusal(self, reason: str, code: str) -> PermanentFailure:
        """The refusal of a step that has nothing to charge, after it was noted that the next attempt charges at once."""
        self.request.checkpoint(**{codes.LAPSED: reserved_by(self.request)})
        what = _("Nothing is charged. The customer can pay again; resubmit this step to charge the payment method now.")
        public = _("The amount that was reserved for your order has lapsed. Please pay again.")
        return PermanentFailure(f"{reason} {what}", code, public)
