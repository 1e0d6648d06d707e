"""How the payment agent calls: each operation once under its key, and a look at its result if the answer is lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import TypeVar

from django.utils.translation import gettext as _

from orders.agents.calls import evidence, retried
from orders.agents.listings import Listing
from orders.gateways import http, payment
from orders.gateways.http import GatewayError, NoAnswer, NotSent
from orders.gateways.payment import CANCELLED, PAID, Broken, Intent, KeyConflict, Refund, Unavailable, WrongState
from orders.payments import codes
from supervision import EffectOutcome, Operation, OutcomeUnknown, PermanentFailure, StepRequest, TransientFailure

T = TypeVar("T")

SERVICE = "payment"
KEYS_REMEMBERED = timedelta(hours=20)  # Stripe says at least 24 hours
listing: Listing[Intent] = Listing(payment.listed, lambda one: one.order, lambda one: one.id, lambda one: one.created)
HARMLESS = (NotSent, NoAnswer, Broken, Unavailable)  # after these errors a read may be repeated


class Calls:
    """The calls of one attempt: each once under its key. After a call without a good answer the agent looks at the result."""

    def __init__(self, request: StepRequest) -> None:
        self.request = request
        self.unsure = False  # whether a call got no good answer and its result is still unknown
        self.before: list[Operation] = []  # the ledger's rows when `known` read them
        self.order = str(request.payload.get("order") or request.run_key)  # a return and a refund name their order
        self.foreign: list[Intent] = []  # what `known` was given, and was made for another order

    def once(self, operation: str, call: Callable[[str], T], look: Callable[[], T | None]) -> T:
        """What `call(key)` returns, or what `look()` finds of its effect. Raises OutcomeUnknown if neither shows the result."""
        first = f"{self.request.idempotency_key}:{operation}"
        fresh = f"{first}:{self.request.attempt}"
        # After no answer the same key may be used again: Stripe replays the answer, or never saw the key. After a stored
        # error, or if the key was used with other parameters, the agent needs a fresh key.
        keys = [first, first, fresh]
        problem: GatewayError | None = None
        while keys:
            key = keys.pop(0)
            try:
                done = retried(partial(call, key), on=(NotSent, Unavailable))
            except NoAnswer as lost:
                problem, self.unsure = lost, True
            except Broken as stored:
                problem, self.unsure = stored, True
                keys = [one for one in keys if one != key]
            except (KeyConflict, WrongState) as refused:
                problem = refused
                keys = [one for one in keys if one != key]
            else:
                self.unsure = False
                return done
            found = look()
            if found is not None:
                self.unsure = False
                return found
        raise OutcomeUnknown(_words(problem), **evidence(problem))

    def told(self, work: Callable[[], T]) -> T:
        """Run the work within the budget, and translate the service's errors into the engine's failures."""
        try:
            with http.budget(self.request.deadline, self.request.pace, partial(self.request.exchanged, SERVICE)):
                return work()
        except GatewayError as problem:
            if isinstance(problem, NotSent | Unavailable) and not self.unsure:
                raise TransientFailure(_words(problem), **evidence(problem)) from problem
            raise OutcomeUnknown(_words(problem), **evidence(problem)) from problem

    def get(self, intent: str) -> Intent:
        """The intent as it is now. Raises PermanentFailure if it was made for another order."""
        found = self.look_at(intent)
        if self.is_foreign(found):
            raise foreign(found)
        return found

    def look_at(self, intent: str) -> Intent:
        """The intent as it is now, whichever order it was made for."""
        return retried(lambda: payment.get(intent), on=HARMLESS)

    def is_foreign(self, intent: Intent) -> bool:
        """Whether it was made for another order. One that names no order was made by people at the payment service."""
        return bool(intent.order) and intent.order != self.order

    def of_order(self) -> list[Intent]:
        """The order's intents that the search finds."""
        return retried(lambda: payment.of_order(self.request.run_key), on=HARMLESS)

    def known(self, *ids: str | None) -> list[Intent]:
        """The order's intents: those with these ids first, then the ledger's, then the others that the service finds.

        An operator may have written an id by hand. One of another order is left out, and noted in `foreign`.
        The search lags behind by a minute. So the service's listing is read too if the ledger may have lost rows, or if
        the service may have forgotten idempotency keys.
        """
        self.before = self.request.effects()
        noted = [one.external_id for one in self.before if one.direction == "do"]
        named = {one: self.look_at(one) for one in dict.fromkeys([*ids, *noted]) if one}
        self.foreign = [one for one in named.values() if self.is_foreign(one)]
        intents = {name: one for name, one in named.items() if not self.is_foreign(one)}
        for found in self.of_order():
            intents.setdefault(found.id, found)
        if self.request.look_first or self._old():
            for found in listing.of(self.request.run_key, self.request.ordered_at()):
                if found.id not in intents:
                    intents[found.id] = self.get(found.id)
        return list(intents.values())

    def learn(self, intents: Sequence[Intent]) -> None:
        """Settle the ledger rows that earlier attempts left open, by the present state of their intents."""
        now = {one.id: one.status for one in intents}
        for one in self.before:
            status = now.get(one.external_id)
            if one.direction != "do" or one.outcome not in (EffectOutcome.INTENDED, EffectOutcome.UNKNOWN):
                continue
            if status == PAID or (status == CANCELLED and one.operation == "create"):
                one.settle(EffectOutcome.DONE if status == PAID else EffectOutcome.UNDONE)
            elif status == CANCELLED:
                one.settle(EffectOutcome.REFUSED)

    def learn_creations(self, intents: Sequence[Intent], but: str = "") -> None:
        """Settle the creations whose attempt died before it knew the intent's id. but: the key of one that the caller settles.

        An intent of this step that no row names is one of theirs. A creation without an intent is undone: either nothing was
        made, or the search does not show it yet. No attempt has its id, so none ever confirms it.
        """
        named = {one.external_id for one in self.before}
        nameless = [one for one in intents if one.step_key == self.request.idempotency_key and one.id not in named]
        for one in self.before:
            if one.operation != "create" or one.direction != "do" or one.external_id or not one.may_exist or one.key == but:
                continue
            intent = nameless.pop(0) if nameless else None
            if intent is None or intent.status == CANCELLED:
                one.settle(EffectOutcome.UNDONE, "" if intent is None else intent.id)
            else:
                one.settle(EffectOutcome.DONE, intent.id)

    def _old(self) -> bool:
        """Whether an operation of unknown effect is so old that the service may have forgotten its key."""
        return any(one.may_exist and one.age > KEYS_REMEMBERED for one in self.before)

    def refunded(self, intent: Intent) -> int:
        """How much of the intent was paid back, in minor units."""
        return retried(lambda: payment.refunded(intent.id), on=HARMLESS)

    def refunds(self, intent: str) -> list[Refund]:
        """Every refund of the intent."""
        return retried(lambda: payment.refunds_of(intent), on=HARMLESS)

    def close(self, intent: Intent, operation: str = "cancel") -> Intent:
        """Cancel an open intent and return it: cancelled, or charged if a confirmation came first."""

        def settled() -> Intent | None:
            now = self.get(intent.id)
            return now if now.status in (PAID, CANCELLED) else None

        return self.once(operation, lambda key: payment.cancel(intent.id, key=key), settled)


def foreign(intent: Intent) -> PermanentFailure:
    """The failure of a step or an undo that was told a payment of another order."""
    text = _("The payment %(intent)s was made for another order, %(order)s: this order charges and refunds nothing of it.")
    return PermanentFailure(text % {"intent": intent.id, "order": intent.order}, codes.FOREIGN)


def _words(problem: GatewayError | None) -> str:
    return _("The payment service %(problem)s.") % {"problem": problem}
