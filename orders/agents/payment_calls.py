"""How the payment agent calls: each operation once under its key, and a look at what became of it when in doubt."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from django.utils.translation import gettext as _

from orders.agents.calls import retried
from orders.gateways import http, payment
from orders.gateways.http import GatewayError, NoAnswer, NotSent
from orders.gateways.payment import CANCELLED, PAID, Broken, Intent, KeyConflict, Unavailable, WrongState
from supervision import OutcomeUnknown, StepRequest, TransientFailure

T = TypeVar("T")

HARMLESS = (NotSent, NoAnswer, Broken, Unavailable)  # to repeat, for reads


class Calls:
    """The calls of one attempt: each once under its key, and looked after when it gives no good answer."""

    def __init__(self, request: StepRequest) -> None:
        self.request = request
        self.unsure = False  # a call got no good answer, and nothing has told yet what became of it

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
        raise OutcomeUnknown(_words(problem))

    def told(self, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Run it within the budget, and say in the engine's words what the service's errors mean."""
        try:
            with http.budget(self.request.deadline, self.request.pace):
                return work()
        except GatewayError as problem:
            if isinstance(problem, NotSent | Unavailable) and not self.unsure:
                raise TransientFailure(_words(problem), retry_after=getattr(problem, "retry_after", None)) from problem
            raise OutcomeUnknown(_words(problem)) from problem

    def get(self, intent: str) -> Intent:
        """The intent as it is now."""
        return retried(lambda: payment.get(intent), on=HARMLESS)

    def of_order(self) -> list[Intent]:
        """The order's intents as the search knows them."""
        return retried(lambda: payment.of_order(self.request.run_key), on=HARMLESS)

    def known(self, *ids: str | None) -> list[Intent]:
        """The order's intents: those with these ids first, then what the search finds besides."""
        intents = {one: self.get(one) for one in dict.fromkeys(ids) if one}
        for found in self.of_order():
            intents.setdefault(found.id, found)
        return list(intents.values())

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
