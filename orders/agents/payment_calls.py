"""How the payment agent calls: each operation once under its key, and a look at what became of it when in doubt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from django.utils.translation import gettext as _

from orders.agents.calls import evidence, retried
from orders.agents.listings import Listing
from orders.gateways import http, payment
from orders.gateways.http import GatewayError, NoAnswer, NotSent
from orders.gateways.payment import CANCELLED, PAID, Broken, Intent, KeyConflict, Unavailable, WrongState
from supervision import EffectOutcome, Operation, OutcomeUnknown, StepRequest, TransientFailure

T = TypeVar("T")

SERVICE = "payment"
KEYS_REMEMBERED = timedelta(hours=20)  # Stripe says at least 24 hours
listing: Listing[Intent] = Listing(payment.listed, lambda one: one.order, lambda one: one.id, lambda one: one.created)
HARMLESS = (NotSent, NoAnswer, Broken, Unavailable)  # to repeat, for reads


class Calls:
    """The calls of one attempt: each once under its key, and looked after when it gives no good answer."""

    def __init__(self, request: StepRequest) -> None:
        self.request = request
        self.unsure = False  # a call got no good answer, and nothing has told yet what became of it
        self.before: list[Operation] = []  # what the ledger knew when `known` asked it

    def once(self, operation: str, call: Callable[[str], T], look: Callable[[], T | None]) -> T:
        """What `call(key)` gives, or what `look()` shows that it has done. Raises OutcomeUnknown when neither tells."""
        first = f"{self.request.idempotency_key}:{operation}"
        fresh = f"{first}:{self.request.attempt}"
        # Without an answer the same key may be used again: it replays, or it was never used. A stored error stays
        # stored, and a key that belongs to other parameters stays theirs: those take a fresh one.
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

    def told(self, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Run it within the budget, and say in the engine's words what the service's errors mean."""
        try:
            with http.budget(self.request.deadline, self.request.pace):
                return work()
        except GatewayError as problem:
            if isinstance(problem, NotSent | Unavailable) and not self.unsure:
                raise TransientFailure(_words(problem), **evidence(problem)) from problem
            raise OutcomeUnknown(_words(problem), **evidence(problem)) from problem

    def get(self, intent: str) -> Intent:
        """The intent as it is now."""
        return retried(lambda: payment.get(intent), on=HARMLESS)

    def of_order(self) -> list[Intent]:
        """The order's intents as the search knows them."""
        return retried(lambda: payment.of_order(self.request.run_key), on=HARMLESS)

    def known(self, *ids: str | None) -> list[Intent]:
        """The order's intents: those with these ids first, then the ledger's, then what the service finds besides.

        The search lags behind by a minute. Where the ledger may have lost something, or where the service may have
        forgotten the keys by which it is asked, the service's listing tells what there is.
        """
        self.before = self.request.effects()
        noted = [one.external_id for one in self.before if one.direction == "do"]
        intents = {one: self.get(one) for one in dict.fromkeys([*ids, *noted]) if one}
        for found in self.of_order():
            intents.setdefault(found.id, found)
        if self.request.look_first or self._old():
            for found in listing.of(self.request.run_key, self.request.ordered_at()):
                if found.id not in intents:
                    intents[found.id] = self.get(found.id)
        return list(intents.values())

    def learn(self, intents: Sequence[Intent]) -> None:
        """Settle what earlier attempts left open, by what their intents are now."""
        now = {one.id: one.status for one in intents}
        for one in self.before:
            status = now.get(one.external_id)
            if one.direction != "do" or one.outcome not in (EffectOutcome.INTENDED, EffectOutcome.UNKNOWN):
                continue
            if status == PAID or (status == CANCELLED and one.operation == "create"):
                one.settle(EffectOutcome.DONE if status == PAID else EffectOutcome.UNDONE)
            elif status == CANCELLED:
                one.settle(EffectOutcome.REFUSED)

    def _old(self) -> bool:
        """Whether something of unknown effect was first called so long ago that the service forgets its key."""
        return any(one.may_exist and one.age > KEYS_REMEMBERED for one in self.before)

    def refunded(self, intent: Intent) -> int:
        """How much of it was paid back."""
        return retried(lambda: payment.refunded(intent.id), on=HARMLESS)

    def close(self, intent: Intent, operation: str = "cancel") -> Intent:
        """Cancel an open intent; gives it cancelled, or charged where somebody was faster."""

        def settled() -> Intent | None:
            now = self.get(intent.id)
            return now if now.status in (PAID, CANCELLED) else None

        return self.once(operation, lambda key: payment.cancel(intent.id, key=key), settled)


def _words(problem: GatewayError | None) -> str:
    return _("The payment service %(problem)s.") % {"problem": problem}
