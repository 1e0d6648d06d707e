"""The rows of a list that several filters narrow, found by a walk over the newest unfinished runs.

A database that is asked for all conditions at once joins every run in Error with its order before it knows the newest fifty. The walk
takes the runs in portions, the newest first, looks at the conditions of each portion through the primary keys, and ends when the page
is full. If few runs fit, the walk gives up: then the filters themselves are asked, the one that leaves least first (`Filters.narrow`).

A list's row is written before its run, so it is not younger. A row is in its place once every run that is still to come is older.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import QuerySet

from supervision.console.lists.found_rows import COUNTED_AHEAD, COUNTED_UP_TO, AtLeast, FewRows, in_order
from supervision.insight.filters import Filters
from supervision.postgres import db
from supervision.states import RunState

PORTION = 250
LOOKED_AT = 250  # the walk looks at least at so many runs, also once the page is full, to count the rows after it
GIVES_UP = 2_500  # the walk gives up if it would have to look at more runs than this
SLACK = timedelta(minutes=1)  # a row may be so much younger than its run: its transaction began while that of the run went on
_BEGINNING, _END = datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC)

# States are written out: with a parameter the planner could not tell that the partial indexes have all that is asked for.
_CUT = """
SELECT max(at) FROM (VALUES {states}) s(state) CROSS JOIN LATERAL (SELECT CASE s.state {cuts} END AS at) each
"""
_NTH = """
WHEN '{state}' THEN (SELECT created_at FROM supervision_run WHERE process_state = '{state}' AND created_at < %(before)s::timestamptz
                      ORDER BY created_at DESC OFFSET %(portion)s - 1 LIMIT 1)
"""
_PORTION = """
SELECT id FROM supervision_run
 WHERE process_state = '{state}' AND created_at < %(before)s::timestamptz AND created_at >= %(cut)s::timestamptz
"""


class WalkedRows:
    """Rows in Error first, then the newest, that fit these values. page_end: the number of the last row on the page.

    values: `Filters.walks` says that they may be walked. plain: the list without its filters.
    """

    ordered = True

    def __init__(self, filters: Filters, values: Mapping[str, Any], state: str, *, plain: QuerySet[Any], page_end: int) -> None:
        self.filters, self.values, self.plain, self._state = filters, values, plain, state
        self._bound = min(page_end, COUNTED_UP_TO)
        self._keys: list[Any] | None = None
        self._more = False

    def keys(self) -> list[Any]:
        """The primary keys of the rows in order: at least those up to the page's end and one more, if there are so many."""
        if self._keys is None:
            self._keys = self._walked()
        if self._keys is None:
            narrowed, _few = self.filters.narrow(self.plain, self.values, rare=True)
            self._keys, self._more = FewRows(narrowed, self._state, self.filters.newest_first, plain=self.plain).keys(), False
        return self._keys

    def count(self) -> int:
        """The rows that were found; `AtLeast` so many if the walk ended before the last run."""
        found = len(self.keys())
        return AtLeast(found) if self._more else found

    def __getitem__(self, place: slice) -> list[Any]:
        return in_order(self.plain, self.keys()[place])

    def _walked(self) -> list[Any] | None:
        """The keys that the walk finds; None if it gave up."""
        found: list[Any] = []
        looked_at = 0
        for states in _groups(self.filters.walks(self.values)):
            waiting: list[tuple[Any, ...]] = []  # rows that fit, which a later portion may still come before
            for runs, cut in self._portions(states):
                waiting += self._fitting(runs)
                looked_at += len(runs)
                settled = len(found) + sum(cut is None or row[1] >= cut + SLACK for row in waiting)
                if cut is not None and settled > self._bound and (looked_at >= LOOKED_AT or settled > self._bound + COUNTED_AHEAD):
                    self._more = True
                    return found + [row[0] for row in _newest_first(waiting)]
                if cut is not None and looked_at >= LOOKED_AT and settled * GIVES_UP < self._bound * looked_at:
                    return None
            found += [row[0] for row in _newest_first(waiting)]
        return found[:COUNTED_UP_TO]

    def _portions(self, states: Sequence[str]) -> Iterator[tuple[list[int], datetime | None]]:
        """The runs in these states, newest first, each portion with the time of its oldest; None for the last portion.

        Runs of the same time are in the same portion, however many they are."""
        after = self.values.get("created_after")
        before, first = _END, _BEGINNING if after is None or after < _BEGINNING + SLACK else after - SLACK
        cuts = "".join(_NTH.format(state=state) for state in states)
        cut_of = _CUT.format(states=", ".join(f"('{state}')" for state in states), cuts=cuts)
        portion = " UNION ALL ".join(_PORTION.format(state=state) for state in states)
        while True:
            [(cut,)] = db.run(cut_of, {"before": before, "portion": PORTION})
            last = cut is None or cut < first
            yield [run for (run,) in db.run(portion, {"before": before, "cut": first if last else cut})], None if last else cut
            if last:
                return
            before = cut

    def _fitting(self, runs: Sequence[int]) -> list[tuple[Any, ...]]:
        """The rows of these runs that fit all values: their keys, and what they are sorted by."""
        ids, rest = self.filters.looked_up(runs, self.values)
        if not ids:
            return []
        rows = self.filters.by(self.filters.of_runs(self.plain.order_by(), ids), rest)
        return list(rows.values_list("pk", *(name.removeprefix("-") for name in self.filters.newest_first)))


def _groups(states: Sequence[str]) -> list[list[str]]:
    """Those in Error, then all others."""
    error = [state for state in states if state == RunState.ERROR]
    return [group for group in (error, [state for state in states if state != RunState.ERROR]) if group]


def _newest_first(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=lambda row: row[1:], reverse=True)
