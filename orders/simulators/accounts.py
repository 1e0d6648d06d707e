"""The payment service's state: payments, refunds, disputes, first answers, and changes that are due later."""

from __future__ import annotations

import heapq
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from orders.simulators import intents
from orders.simulators.intents import JSON
from orders.simulators.listing import Book


class Accounts:
    """The state of the payment service. Callers hold the service's lock while they read or write it."""

    def __init__(self) -> None:
        self.intents = Book("payment_intent")
        self.refunds = Book("refund", by="payment_intent")
        self.disputes = Book("dispute", by="payment_intent")
        self.first: dict[str, JSON] = {}  # idempotency key: the first answer
        self._of_order: dict[str, list[tuple[float, str]]] = defaultdict(list)
        self._later: list[tuple[float, str, str]] = []  # time, refund's id, its new state
        self._lapses: list[tuple[float, str]] = []  # time, id of a payment whose amount is reserved

    def remember(self, memory: Mapping[str, Any]) -> None:
        """Apply one ledger entry's memory to the state: after a request, or when a restart reads the ledger."""
        if "forgot" in memory:
            self.first.clear()
        if "first" in memory:
            self.first[memory["first"]["key"]] = memory["first"]
        if intent := memory.get("intent"):
            order = intent["metadata"].get("order")
            if order and intent["id"] not in self.intents:
                self._of_order[order].append((memory.get("at", intent["created"]), intent["id"]))
            self.intents.put(intent)
        if refund := memory.get("refund"):
            self.refunds.put(refund)
        if dispute := memory.get("dispute"):
            self.disputes.put(dispute)
        if later := memory.get("later"):
            heapq.heappush(self._later, (later["at"], later["refund"], later["status"]))
        if lapses := memory.get("lapses"):
            heapq.heappush(self._lapses, (lapses["at"], lapses["intent"]))

    def found(self, order: str, lag: float) -> list[JSON]:
        """The order's payments as the search shows them: newest first, and none younger than `lag` seconds."""
        known = time.time() - lag
        return [self.intents.get(one, "id") for at, one in reversed(self._of_order.get(order, [])) if at <= known]

    def due(self) -> Iterator[JSON]:
        """The refunds that now reach their final state, in that state; each is given once."""
        while self._later and self._later[0][0] <= time.time():
            _at, name, status = heapq.heappop(self._later)
            refund = self.refunds.get(name, "id")
            if refund["status"] in ("pending", "succeeded") and refund["status"] != status:
                yield intents.settled(refund, status)

    def lapsed(self) -> Iterator[JSON]:
        """The payments whose reserved amount lapses now, in their new state; each is given once."""
        while self._lapses and self._lapses[0][0] <= time.time():
            _at, name = heapq.heappop(self._lapses)
            intent = self.intents.get(name, "intent")
            if intent["status"] == intents.RESERVED:
                yield intents.expired(intent)
