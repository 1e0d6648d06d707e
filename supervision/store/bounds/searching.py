"""Where a search for waiting rows begins.

PostgreSQL keeps the index entries of rows that have left a queue as long as any snapshot may need them. During a backup or a
long report, every search from the beginning reads all entries made since it began. So after a slow search the next ones begin
shortly before the newest row that was taken (`SearchStart`). Without an old snapshot, searches are quick and see everything.
"""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any, Generic, TypeVar
from weakref import WeakSet

SLOW_SECONDS = 0.02
SHARE = 0.2  # the share of the time that searches of everything may take
WAIT_SECONDS = 5.0

# A transaction that began earlier may commit later. So a search begins this far before the last row that was taken.
OVERLAP_IDS = 5_000
OVERLAP = timedelta(seconds=5)

Bound = TypeVar("Bound")
_all: WeakSet[SearchStart[Any]] = WeakSet()


class SearchStart(Generic[Bound]):
    """Where the next search of one queue begins, as far as this process knows. lowest: a bound that is below every row.

    After a slow search of everything, the next one comes after five times its duration, at most after WAIT_SECONDS. Until then
    a row that joins far before the bound (a retry that keeps its turn, an order of high priority) waits.
    """

    def __init__(self, lowest: Bound) -> None:
        self._lowest = self._mark = lowest
        self._everything_at = 0.0
        self._saw_everything = True
        _all.add(self)

    def of_search(self, began: float) -> Bound:
        """The bound of a search that begins at this `time.monotonic()` value."""
        self._saw_everything = began >= self._everything_at
        return self._lowest if self._saw_everything else self._mark

    def ended(self, began: float, reached: Bound | None) -> None:
        """Note the search that began then. reached: the bound at which later searches may begin, if it found rows."""
        now = time.monotonic()
        if began >= self._everything_at and now - began > SLOW_SECONDS:
            self._everything_at = now + min((now - began) / SHARE, WAIT_SECONDS)
        if reached is not None:
            self._mark = reached

    def blind_seconds(self) -> float:
        """For how long there may be rows that the last search did not see; 0 if it searched everything."""
        return 0.0 if self._saw_everything else max(0.0, self._everything_at - time.monotonic())

    def see_everything(self) -> None:
        """Make the next search cover everything."""
        self._everything_at = 0.0

    def forget(self) -> None:
        """Let the next search begin at the lowest bound."""
        self._mark = self._lowest
        self._saw_everything = True
        self.see_everything()


def forget() -> None:
    """Let every search of this process begin at its lowest bound."""
    for start in _all:
        start.forget()
