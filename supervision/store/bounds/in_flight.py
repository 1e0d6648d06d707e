"""How many steps are claimed at once, in all processes together: it bounds how many messages wait at the broker."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from supervision import conf
from supervision.postgres import db
from supervision.store.bounds.searching import SearchStart

_IN_FLIGHT = """
SELECT count(*), coalesce((array_agg(run_id))[count(*) / 10 + 1], %(since)s::bigint)
  FROM (SELECT run_id FROM supervision_stepstate
         WHERE process_state = 'Processing' AND run_id >= %(since)s::bigint ORDER BY run_id LIMIT %(n)s) s
"""


class InFlight:
    """How many steps are claimed, as far as this process knows. It bounds how many messages wait at the broker.

    Correctness does not depend on it, and counting thousands of rows takes milliseconds. So they are counted four times a second,
    and ten times as often while they leave too little room; this process's own claims since then are added.
    """

    COUNT_SECONDS = 0.25

    def __init__(self) -> None:
        self._counted_at, self._number = 0.0, 0
        self._search = SearchStart(0)

    def room(self, wanted: int) -> int:
        """How many more steps may be claimed; negative if there are too many."""
        now, limit = time.monotonic(), conf.get().in_flight
        age = now - self._counted_at
        if age > self.COUNT_SECONDS or (self._number + wanted > limit and age > self.COUNT_SECONDS / 10):
            self._counted_at, self._number = now, self.count()
        return limit - self._number

    def is_old(self) -> bool:
        """Whether `room` will soon have to count anew."""
        return time.monotonic() - self._counted_at > self.COUNT_SECONDS / 2

    def add(self, count: int) -> None:
        """Note that this process has just claimed this many steps."""
        self._number += count

    def count(self) -> int:
        """How many steps are claimed, counted up to the limit."""
        began = time.monotonic()
        return self._counted(db.fetch(*self.question(began)), began)

    def question(self, began: float) -> db.Statement:
        """The statement that counts. began: the `time.monotonic()` value before it is sent."""
        return _IN_FLIGHT, {"n": conf.get().in_flight, "since": self._search.of_search(began)}

    def answered(self, rows: Sequence[tuple[Any, ...]], began: float) -> None:
        """Note the answer to `question`, which was sent with others."""
        self._counted_at, self._number = began, self._counted(rows, began)

    def _counted(self, rows: Sequence[tuple[Any, ...]], began: float) -> int:
        self._search.ended(began, int(rows[0][1]))
        return int(rows[0][0])

    def forget(self) -> None:
        """Count again at the next question."""
        self._counted_at, self._number = 0.0, 0


in_flight = InFlight()
