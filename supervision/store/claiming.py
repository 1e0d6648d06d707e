"""What may be worked on now: takes waiting submissions, claims due steps, and bounds how many steps are claimed at once.

PostgreSQL keeps the index entries of rows that have left a queue as long as any snapshot may need them. During a backup or a
long report, every search from the beginning reads all entries made since it began. So after a slow search the next ones begin
shortly before the newest row that was taken (`SearchStart`). Without an old snapshot, searches are quick and see everything.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Generic, TypeVar
from weakref import WeakSet

from supervision import conf
from supervision.postgres import db
from supervision.runtime.identity import me
from supervision.states import Claim
from supervision.store import step_sql
from supervision.store.records import Gate, LockedSubmission
from supervision.telemetry import measures
from supervision.workflow import StepPosition, Workflow, known_labels, known_names

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
    """Reset what this process remembers of every queue, because the tables are no longer the same."""
    in_flight.forget()
    for start in _all:
        start.forget()


_waiting = SearchStart(0)
_due: SearchStart[Any] = SearchStart("-infinity")
_due_at: dict[tuple[str, ...], SearchStart[Any]] = {}  # by the agents of one service
_first_due: SearchStart[Any] = SearchStart("-infinity")


# -------------------------------------------------------------------------------------------- waiting submissions


def take_submissions(limit: int, *, only: Sequence[int] | None = None) -> list[LockedSubmission]:
    """Up to `limit` waiting submissions, oldest first, locked; call it inside a transaction. only: the ids of those to take."""
    names = known_names()
    if only is not None:
        params = {"limit": len(only), "only": list(only), "since": min(only, default=0), "names": names}
        return [LockedSubmission(*row) for row in db.fetch(step_sql.TAKE_SUBMISSIONS, params)]
    began = time.monotonic()
    params = {"limit": limit, "only": None, "since": _waiting.of_search(began), "names": names}
    rows = db.fetch(step_sql.TAKE_SUBMISSIONS, params)
    _waiting.ended(began, rows[-1][0] - OVERLAP_IDS if rows else None)
    return [LockedSubmission(*row) for row in rows]


def gate(workflow: Workflow, position: int, *, shut: Sequence[str]) -> Gate:
    """What delays the claims of new runs: pauses, older due steps. shut: agents whose steps do not count. Inside a transaction."""
    step = workflow.steps[position]
    params = {"wait": False, "agent": step.agent, "workflow": workflow.name, "shut": list(shut), "known": known_labels()}
    began = time.monotonic()
    rows = db.fetch(step_sql.GATE, {**params, "since": _first_due.of_search(began)})
    paused, orders, turn = rows[0]
    _first_due.ended(began, None if turn is None else turn - OVERLAP)
    return Gate(paused, set(orders), turn is not None)


# ------------------------------------------------------------------------------------------------------ due steps


def claim(limit: int, *, shut: Sequence[str] = (), only: Sequence[str] | None = None) -> dict[StepPosition, list[Claim]]:
    """Claim up to `limit` due steps for dispatch, exclusively, most urgent first.

    shut: agents whose steps are not claimed. only: claim the steps of these agents and no others.
    """
    search = _due if only is None else _due_at.setdefault(tuple(only), SearchStart("-infinity"))
    began = time.monotonic()
    params = {
        "limit": limit,
        "shut": list(shut),
        "only": None if only is None else list(only),
        "since": search.of_search(began),
        "known": known_labels(),
        "me": me(),
        "lease": lease(),
    }
    rows = db.run(step_sql.CLAIM, params)
    turns = [row[-1] for row in rows if row[-1] is not None]
    search.ended(began, max(turns) - OVERLAP if turns else None)
    return _by_place(rows)


def claim_probes(limit: int, resource: str, agents: Sequence[str]) -> dict[StepPosition, list[Claim]]:
    """Claim up to `limit` due steps of these agents as probes of this resource, first those that have not failed there."""
    params = {"only": list(agents), "resource": resource, "known": known_labels(), "me": me(), "lease": lease()}
    rows = db.run(step_sql.PROBE_WITH_ANOTHER, {**params, "limit": limit})
    if len(rows) < limit:
        rows += db.run(step_sql.PROBE_AGAIN, {**params, "limit": limit - len(rows)})
    return _by_place(rows)


def _by_place(rows: Sequence[tuple[Any, ...]]) -> dict[StepPosition, list[Claim]]:
    places: dict[StepPosition, list[Claim]] = {}
    for run_id, attempt, direction, position, workflow, version, age, _ in rows:
        place = StepPosition(workflow, version, direction, position)
        places.setdefault(place, []).append(Claim(run_id, attempt))
        measures.QUEUE_AGE.observe(age, place.agent.name)
    return places


def lease() -> float:
    """Seconds a claim may wait for an agent to start it."""
    settings = conf.get()
    return (settings.complete_within or settings.dispatch_within).total_seconds()


def any_due(*, shut: Sequence[str]) -> bool:
    """Whether a step is due whose agent is not shut off."""
    began = time.monotonic()
    params = {"shut": list(shut), "known": known_labels(), "since": _first_due.of_search(began)}
    rows = db.run(step_sql.ANY_DUE, params)
    _first_due.ended(began, rows[0][0] - OVERLAP if rows and rows[0][0] is not None else None)
    return bool(rows)


def unseen_seconds() -> float:
    """For how long due steps may stay unseen, because the last searches skipped a part of the index that takes too long to read."""
    return max(search.blind_seconds() for search in (_due, _first_due, *_due_at.values()))


def see_everything() -> None:
    """Let the next searches for due steps skip nothing."""
    for search in (_due, _first_due, *_due_at.values()):
        search.see_everything()


# ------------------------------------------------------------------------------------------------- steps in flight

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

    def add(self, count: int) -> None:
        """Note that this process has just claimed this many steps."""
        self._number += count

    def count(self) -> int:
        """How many steps are claimed, counted up to the limit."""
        began = time.monotonic()
        rows = db.fetch(_IN_FLIGHT, {"n": conf.get().in_flight, "since": self._search.of_search(began)})
        self._search.ended(began, int(rows[0][1]))
        return int(rows[0][0])

    def forget(self) -> None:
        """Count again at the next question."""
        self._counted_at, self._number = 0.0, 0


in_flight = InFlight()
