"""The services' listings, by order. Agents use them to prove that nothing exists when a key or a search cannot tell.

An agents process reads a listing once for all orders that ask at the same time, and later reads only its newest part
again. A listing only gives ids: its states may be seconds old, so agents ask the service for each thing itself.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Generic, TypeVar

T = TypeVar("T")

FRESH_SECONDS = 5.0  # how long one reading answers the questions of all orders
CLOCKS = timedelta(minutes=10)  # how far the service's clock may differ from ours
MOST_KEPT = 200_000


class Listing(Generic[T]):
    """The things (payments, shipments) that a service holds, by the order they were made for.

    read: gives everything created since a moment. order_of, name_of, created_of: give a thing's order, its id, and its
    creation time by the service's clock.
    """

    def __init__(
        self,
        read: Callable[[datetime], Iterable[T]],
        order_of: Callable[[T], str | None],
        name_of: Callable[[T], str],
        created_of: Callable[[T], datetime | None],
    ) -> None:
        self._read, self._order_of, self._name_of, self._created_of = read, order_of, name_of, created_of
        self._lock = threading.Lock()
        self.forget()

    def forget(self) -> None:
        """Drop everything: the next question reads the listing again."""
        self._from: datetime | None = None
        self._newest: datetime | None = None  # by the service's clock
        self._read_at = float("-inf")
        self._of: dict[str, dict[str, T]] = {}

    def of(self, order: str, since: datetime) -> list[T]:
        """What the service listed for this order since then, read at most FRESH_SECONDS ago. Raises the gateway's errors."""
        with self._lock:
            if len(self._of) > MOST_KEPT:
                self.forget()
            if self._from is None or since < self._from:
                self._take(since - CLOCKS)
                self._from = since
            elif time.monotonic() - self._read_at > FRESH_SECONDS:
                self._take((self._newest or self._from) - CLOCKS)
            return list(self._of.get(order, {}).values())

    def _take(self, since: datetime) -> None:
        at, newest = time.monotonic(), self._newest
        for one in self._read(since):
            if (created := self._created_of(one)) is not None:
                newest = created if newest is None else max(newest, created)
            if order := self._order_of(one):
                self._of.setdefault(order, {})[self._name_of(one)] = one
        # Once all is read: a listing may begin with the newest, and the next reading would leave out what this one did not reach.
        self._newest, self._read_at = newest, at
