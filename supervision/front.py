"""Where the live rows of a queue in a table begin, while somebody holds an old snapshot.

What has left a queue stays in its index for as long as any snapshot may need it: with a backup or a long report under
way, every look for work would walk over all that was done since. So when a look from the very beginning was slow, the
next ones begin shortly before the newest row that was taken, and the whole way is gone only after five times as long, or
WAIT_SECONDS. Until then a row that joins far behind that point (a retry that keeps its turn, an order of high priority)
waits. Without an old snapshot, looks are quick and see everything.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar
from weakref import WeakSet

SLOW_SECONDS = 0.02
SHARE = 0.2  # of the time that looks at everything may take
WAIT_SECONDS = 5.0

Bound = TypeVar("Bound")
_all: WeakSet[Front[Any]] = WeakSet()


class Front(Generic[Bound]):
    """One queue, as this process sees it. lowest: the bound below which nothing is."""

    def __init__(self, lowest: Bound) -> None:
        self._lowest = self._mark = lowest
        self._everything_at = 0.0
        self._saw_everything = True
        _all.add(self)

    def look(self, ask: Callable[[Bound], Sequence[Any]], reached: Callable[[Sequence[Any]], Bound | None]) -> Sequence[Any]:
        """The rows that `ask` finds from a bound upwards; `reached` says where looks may begin after these."""
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
        """For how long there may be more than the last look has seen; 0 where it saw everything."""
        return 0.0 if self._saw_everything else max(0.0, self._everything_at - time.monotonic())

    def see_everything(self) -> None:
        """Look at everything the next time."""
        self._everything_at = 0.0

    def forget(self) -> None:
        """Begin at the beginning."""
        self._mark = self._lowest
        self._saw_everything = True
        self.see_everything()


def forget() -> None:
    """All of them: the tables are no longer the same."""
    for front in _all:
        front.forget()
