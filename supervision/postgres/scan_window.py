"""Remembers where the live rows of a queue table begin, so that looks for work stay fast while an old snapshot is held.

PostgreSQL keeps the index entries of rows that have left the queue as long as any snapshot may need them. During a backup
or a long report, every look for work would read all entries made since it began. So after a slow look from the beginning,
the next ones begin shortly before the newest row that was taken. The next look from the beginning comes after five times
its duration, at most after WAIT_SECONDS. Until then a row that joins far before that point (a retry that keeps its turn, an
order of high priority) waits. Without an old snapshot, looks are quick and see everything.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar
from weakref import WeakSet

SLOW_SECONDS = 0.02
SHARE = 0.2  # the share of the time that looks at everything may take
WAIT_SECONDS = 5.0

Bound = TypeVar("Bound")
_all: WeakSet[Front[Any]] = WeakSet()


class Front(Generic[Bound]):
    """One queue, as this process sees it. lowest: a bound that is below every row."""

    def __init__(self, lowest: Bound) -> None:
        self._lowest = self._mark = lowest
        self._everything_at = 0.0
        self._saw_everything = True
        _all.add(self)

    def look(self, ask: Callable[[Bound], Sequence[Any]], reached: Callable[[Sequence[Any]], Bound | None]) -> Sequence[Any]:
        """The rows that `ask` finds from a bound upwards. `reached` returns the bound at which later looks may begin."""
        began = time.monotonic()
        everything = self._saw_everything = began >= self._everything_at
        rows = ask(self._lowest if everything else self._mark)
        now = time.monotonic()
        if everything and now - began > SLOW_SECONDS:
            self._everything_at = now + min((now - began) / SHARE, WAIT_SECONDS)
        if rows and (mark := reached(rows)) is not None:
            self._mark = mark
        return rows

    def blind_seconds(self) -> float:
        """For how long there may be rows that the last look did not see; 0 if it looked at everything."""
        return 0.0 if self._saw_everything else max(0.0, self._everything_at - time.monotonic())

    def see_everything(self) -> None:
        """Make the next look cover everything."""
        self._everything_at = 0.0

    def forget(self) -> None:
        """Let the next look begin at the lowest bound."""
        self._mark = self._lowest
        self._saw_everything = True
        self.see_everything()


def forget() -> None:
    """Reset every queue of this process, because the tables are no longer the same."""
    for front in _all:
        front.forget()
