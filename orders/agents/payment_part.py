"""Gives back the money for returned goods: a part of an order's charge, once, and never more than is left of it.

Used by the step `refund-part` of a return, and of a refund that an operator asks for (which "return" also
means below). Why no return is paid back twice, and none beyond what was paid:

1. Before each call the agent reads every refund and dispute of the charge. Refunds of this return are known by their metadata,
   which names it. So an attempt that comes after one that died finds that one's refund, and makes no second one.
2. What others gave back meanwhile is counted: refunds of other returns or made at the payment service, and disputes that the shop
   may lose or has lost; and what operators gave back by hand, of which the service does not know. The agent asks for what is left
   at most. Stripe refuses more than the charge, too.
3. The key names the return, the number of its refunds so far, and the amount. Two attempts that saw the same refunds use the same
   key, so Stripe makes one refund. A refund that has failed counts, so the next one has a key of its own.

If less is left than the goods are worth, the result says so (`short`): the customer has got the rest in another way. What they
are worth is read from the return's record: operators may have written the result of `await-goods` by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from functools import partial
from typing import Any

from django.utils.translation import gettext as _

from orders.agents import payment_news, payment_payout
from orders.agents.calls import retried
from orders.agents.payment_calls import HARMLESS, SERVICE, Calls
from orders.gateways import payment
from orders.gateways.money import NoSuchAmount, from_minor, to_minor
from orders.gateways.payment import Dispute, Refund, Rejected
from orders.payments import cards
from orders.refunds.codes import BEYOND, REPLACED_ALREADY
from orders.refunds.recorded import amount_of, is_refund
from orders.returns import codes
from orders.returns.recorded import worth
from supervision import EffectOutcome, OutcomeUnknown, PermanentFailure, StepRequest

PART = "refund-part"
ROUNDS = 3  # refunds that one attempt may make: an earlier one failed, or less was left than it seemed


def perform(request: StepRequest) -> dict[str, Any]:
    """`{"intent", "refunded", "short", "currency", "refunds"}`. Raises PermanentFailure where people have to pay the money back."""
    part = Part(request)
    return part.told(part.run)


def compensate(request: StepRequest) -> dict[str, Any]:
    """Nothing, if no money went out. Raises PermanentFailure if some did: it cannot be fetched back."""
    part = Part(request)
    return part.told(part.undo)


class Part(Calls):
    """One attempt to give back the money for the accepted goods of one return."""

    def __init__(self, request: StepRequest) -> None:
        super().__init__(request)
        self.intent = request.payload.get("intent")
        self.currency = str(request.payload["currency"])
        self.whole = is_refund(request)  # an operator's refund is paid in full or not at all
        self.replaces = str(request.payload.get("replaces") or "")  # the failed refund whose money this one sends again

    def run(self) -> dict[str, Any]:
        amount = amount_of(self.request) if self.whole else worth(self.request)
        if not self.intent:
            return payment_payout.perform(self.request, amount, whole=self.whole)
        try:
            wanted = to_minor(str(amount), self.currency)
        except NoSuchAmount:
            text = _("%(amount)s %(currency)s cannot be refunded.") % {"amount": amount, "currency": self.currency}
            raise PermanentFailure(text) from None
        self.before = self.request.effects()
        refused = ""
        for _round in range(ROUNDS + 1):
            refunds, disputes = self.look()
            own = [one for one in refunds if one.of_return == self.request.run_key]
            self.learn_refunds(own)
            if not own and self.replaces and any(one.replaces == self.replaces for one in refunds):
                text = _("The failed refund %(id)s was paid again by another call: cancel this refund.") % {"id": self.replaces}
                raise PermanentFailure(text, REPLACED_ALREADY)
            missing = wanted - sum(one.amount for one in own if one.gives_back)
            part = min(missing, self.left(refunds, disputes))
            if self.whole and part < missing:
                words = {"left": from_minor(part, self.currency), "amount": amount, "currency": self.currency}
                text = _("Only %(left)s of %(amount)s %(currency)s are left of the charge: cancel this refund.") % words
                raise PermanentFailure(text, BEYOND)
            if part <= 0:
                return self.result(refunds, disputes, own, max(0, missing))
            if _round < ROUNDS:
                refused = self.refund(part, len(own))
        if refused:
            raise PermanentFailure(_("The payment service refuses the refund: %(reason)s") % {"reason": refused}, "refund_refused")
        raise OutcomeUnknown(_("The payment service does not give the money back."))

    def look(self) -> tuple[list[Refund], list[Dispute]]:
        """Every refund and every dispute of the charge."""
        intent = str(self.intent)
        return self.refunds(intent), retried(lambda: payment.disputes_of(intent), on=HARMLESS)

    def left(self, refunds: Sequence[Refund], disputes: Sequence[Dispute]) -> int:
        """What of the charge the customer has neither got back nor disputes, in minor units."""
        gone = sum(one.amount for one in refunds if one.gives_back) + sum(one.amount for one in disputes if one.hurts)
        if by_hand := cards.given(str(self.request.payload["order"]), str(self.intent)):
            gone += to_minor(by_hand, self.currency)
        return max(0, self.get(str(self.intent)).received - gone)

    def refund(self, part: int, number: int) -> str:
        """Give this much back, in minor units. number: the refunds of this return so far. The reason, if the service refuses."""
        operation = f"{PART}:{number}:{part}"
        first = f"{self.request.idempotency_key}:{operation}"
        facts = {"return": self.request.run_key, "step_key": first}
        if self.replaces.startswith("re_"):  # of a cancelled order, "replaces" is the payment itself
            facts["replaces"] = self.replaces
        row = self.request.intend(
            PART,
            key=first,
            service=SERVICE,
            amount=from_minor(part, self.currency),
            currency=self.currency.upper(),
            external_id="",
        )
        call = partial(payment.refund, str(self.intent), amount=part, metadata=facts)

        def made() -> str | None:
            return next((one.id for one in self.refunds(str(self.intent)) if one.step_key == first), None)

        try:
            row.settle(EffectOutcome.DONE, self.once(operation, lambda key: call(key=key), made))
        except Rejected as problem:
            row.settle(EffectOutcome.REFUSED)
            return str(problem)
        self.before.append(row)
        return ""

    def learn_refunds(self, own: Sequence[Refund]) -> None:
        """Settle the ledger's rows by what the service shows: whose refund exists, and whose has failed since."""
        by_key = {one.step_key: one for one in own}
        for row in self.before:
            if row.operation != PART:
                continue
            made = by_key.get(row.key)
            if made is None or not made.gives_back:
                if row.outcome is EffectOutcome.DONE and made is not None:
                    row.settle(EffectOutcome.UNDONE, made.id)  # it was given back, and has failed since
                elif row.outcome is not EffectOutcome.REFUSED:
                    row.settle(EffectOutcome.REFUSED, made.id if made else row.external_id)
            elif row.outcome is not EffectOutcome.DONE:
                row.settle(EffectOutcome.DONE, made.id)

    def result(self, refunds: Sequence[Refund], disputes: Sequence[Dispute], own: Sequence[Refund], missing: int) -> dict[str, Any]:
        payment_news.record(str(self.request.payload["order"]), [*refunds, *disputes])
        given = [one for one in own if one.gives_back]
        return {
            "intent": self.intent,
            "refunded": str(from_minor(sum(one.amount for one in given), self.currency)),
            "short": str(from_minor(missing, self.currency)),
            "currency": self.currency,
            "refunds": [one.id for one in given],
        }

    def undo(self) -> dict[str, Any]:
        if not self.intent:
            return payment_payout.compensate(self.request)
        self.before = self.request.effects()
        own = [one for one in self.look()[0] if one.of_return == self.request.run_key]
        self.learn_refunds(own)
        given = sum((from_minor(one.amount, self.currency) for one in own if one.gives_back), Decimal(0))
        given = given or codes.amount_said((self.request.performed or {}).get("refunded"))
        if given:
            text = _("%(given)s %(currency)s were paid back and cannot be fetched back: settle it by hand, then complete this step.")
            raise PermanentFailure(text % {"given": given, "currency": self.currency}, "refund_made")
        return {}
