"""The invariants that hold after every step of every scenario, checked on the rows of two statements.

I1-I13 of the failure study, on the database and on the model remote. Each check's message names the broken invariant.
The audit's own queries run at the end of a scenario; these are quick equivalents for one scenario's few orders.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from supervision.agent import get_agent
from supervision.postgres import db
from supervision.recovery.failures import CLOCK_SLACK
from supervision.states import ATTEMPTS_PER_EPOCH, FINAL_RUN_STATES, FINAL_STEP_STATES, RUN_MOVES, STEP_MOVES
from tests.simulation.remote import Remote

_RUN_MOVES = {(move.source, move.target) for move in RUN_MOVES}
_STEP_MOVES = {(move.source, move.target) for move in STEP_MOVES}
_OPEN = ("Pending", "Processing", "Error")

_ROWS = """
SELECT r.id, r.key, r.process_state, r.direction, r.workflow, coalesce((r.payload->>'n')::int, 0), r.complete_by < now(),
       s.direction, s.position, s.process_state, s.attempt, s.generation, s.failure_count, s.dispatch_count, s.effect,
       s.started_at IS NOT NULL AND s.process_state = 'Processing', coalesce(s.complete_by < now(), false),
       s.process_state = 'Processing' AND s.complete_by > now() + %(slack)s::float8 * interval '1 s'
       AND coalesce(s.started_at, (SELECT max(e.at) FROM supervision_stepevent e WHERE e.run_id = s.run_id
           AND e.direction = s.direction AND e.position = s.position AND e.attempt = s.attempt AND e.to_state = 'Processing'))
           > now() + %(slack)s::float8 * interval '1 s',
       s.locked_by IS NOT NULL,
       coalesce(s.not_before <= now(), false), s.not_before IS NOT NULL, s.idempotency_key, s.agent, s.seq
  FROM supervision_run r JOIN supervision_stepstate s ON s.run_id = r.id
 ORDER BY r.id, s.direction, s.position
"""

_EVENTS = """
SELECT e.run_id, e.seq, e.position, e.direction, e.attempt, e.from_state, e.to_state
  FROM supervision_stepevent e LEFT JOIN unnest(%(runs)s::bigint[], %(seqs)s::int[]) v(run_id, seq) ON v.run_id = e.run_id
 WHERE e.seq > coalesce(v.seq, 0)
 ORDER BY e.run_id, e.seq
"""

At = tuple[int, str, int]  # run, direction, position


class Row(NamedTuple):
    """One step's row, with flags that depend on the database's clock."""

    run_id: int
    direction: str
    position: int
    state: str
    attempt: int
    generation: int
    failures: int
    dispatches: int
    effect: str
    started: bool
    overdue: bool
    ahead: bool  # its start lies in the future: the clock was ahead then
    locked: bool
    due: bool
    released: bool
    key: str
    agent: str
    seq: int

    @property
    def at(self) -> At:
        """The step's place."""
        return self.run_id, self.direction, self.position

    @property
    def can_be_undone(self) -> bool:
        """Whether its agent has an undo."""
        return bool(get_agent(self.agent).undoable)


@dataclass
class Order:
    """One run with its steps."""

    id: int
    key: str
    state: str
    direction: str
    workflow: str
    n: int
    overdue: bool
    do: list[Row] = field(default_factory=list)
    undo: list[Row] = field(default_factory=list)  # by position, ascending

    @property
    def rows(self) -> Iterable[Row]:
        """All its steps."""
        return (*self.do, *self.undo)

    @property
    def final(self) -> bool:
        """Whether the order's state is final."""
        return self.state in FINAL_RUN_STATES

    @property
    def failed(self) -> Row | None:
        """The step in Error that an operator can act on."""
        return next((row for row in (self.undo[::-1] if self.direction == "undo" else self.do) if row.state == "Error"), None)


def read() -> dict[int, Order]:
    """Every order of the store, by run id."""
    orders: dict[int, Order] = {}
    for run_id, key, state, direction, workflow, n, overdue, *step in db.fetch(_ROWS, {"slack": CLOCK_SLACK.total_seconds()}):
        order = orders.setdefault(run_id, Order(run_id, key, state, direction, workflow, n, bool(overdue)))
        row = Row(run_id, *step)
        (order.do if row.direction == "do" else order.undo).append(row)
    return orders


class Broken(AssertionError):
    """An invariant does not hold."""


def _require(holds: Any, message: str, *facts: Any) -> None:
    if not holds:
        raise Broken(f"{message}: {', '.join(map(str, facts))}")


class Watch:
    """Reads the store after every verb and compares it with the state before."""

    def __init__(self, remote: Remote) -> None:
        self.remote = remote
        self.orders: dict[int, Order] = {}
        self.rows: dict[At, Row] = {}
        self.seqs: dict[int, int] = {}
        self.told: dict[Any, str] = {}  # the state by the events: run or (run, direction, position) -> state
        self.claims: dict[At, int] = {}
        self.epochs = 0  # how often the database was restored
        self.looks = 0
        self.moves: Counter[tuple[str, str | None, str]] = Counter()
        self.waived: set[tuple[str, int]] = set()  # undo steps that an operator has skipped

    def look(self) -> dict[int, Order]:
        """Read the store, check everything, remember it."""
        self.looks += 1
        orders = read()
        rows = {row.at: row for order in orders.values() for row in order.rows}
        self._history()
        for order in orders.values():
            self._shape(order)
            self._told(order)
            self._effects(order)
        self._onward(orders, rows)
        self._undo_order()
        self.orders, self.rows = orders, rows
        return orders

    # ------------------------------------------------------------------------------------------- the history

    def _history(self) -> None:
        rows = db.fetch(_EVENTS, {"runs": list(self.seqs), "seqs": list(self.seqs.values())})
        for run_id, seq, position, direction, attempt, source, target in rows:
            expected = self.seqs.get(run_id, 0) + 1
            _require(seq == expected, "I14 events are numbered without a gap", run_id, seq, expected)
            self.seqs[run_id] = seq
            if position is None:
                _require((source, target) in _RUN_MOVES, "a run makes allowed moves only", run_id, source, target)
                _require(self.told.get(run_id) == source, "a run leaves the state it was in", run_id, self.told.get(run_id), source, target)
                self.told[run_id] = target
                self.moves["run", source, target] += 1
                continue
            self.moves["step", source, target] += 1
            at = (run_id, direction, position)
            _require((source, target) in _STEP_MOVES, "a step makes allowed moves only", at, source, target)
            _require(self.told.get(at, "Pending") == source, "a step leaves the state it was in", at, self.told.get(at), source, target)
            if target == "Processing":
                before = self.claims.setdefault(at, self._born(attempt))
                _require(attempt == before + 1, "I10 attempts are strictly increasing", at, attempt)
                self.claims[at] = attempt
                if self.told.get(run_id) == "Pending":
                    self.told[run_id] = "Processing"  # the claim moves the run, and only the step's event records it
            self.told[at] = target

    def _born(self, attempt: int) -> int:
        """The attempt number that a step is written with: it counts the epochs that began after its order was accepted."""
        return ATTEMPTS_PER_EPOCH * min(self.epochs, attempt // ATTEMPTS_PER_EPOCH)

    def _told(self, order: Order) -> None:
        _require(self.told.get(order.id) == order.state, "the events tell the run's state", order.id, self.told.get(order.id), order.state)
        for row in order.rows:
            _require(self.told.get(row.at, "Pending") == row.state, "the events tell the step's state", row, self.told.get(row.at))
            _require(self.claims.setdefault(row.at, self._born(row.attempt)) == row.attempt, "I10 every attempt has its claim's event", row)
            newest = self.seqs[order.id]
            _require(row.state not in _OPEN or row.seq <= newest, "the baton is never ahead of the history", row, newest)

    # --------------------------------------------------------------------------------------------- the shape

    def _shape(self, order: Order) -> None:
        rows = list(order.rows)
        running = [row for row in rows if row.state == "Processing"]
        _require(len(running) <= 1, "a run processes one step at a time", *running)
        for row in rows:
            _require((row.state == "Processing") == row.locked, "a running step, and no other, has an owner", row)
            _require(row.state != "Processed" or row.effect == "done", "a Processed step's effect is done", row)
            _require(row.failures + row.dispatches <= row.attempt, "each attempt is counted once at most", row)
        self._order_of_steps(order)
        failed = [row for row in rows if row.direction == order.direction and row.state == "Error"]
        _require(len(failed) == (order.state == "Error"), "a run in Error stands at exactly one step in Error", order)
        _require([row.position for row in order.do] == list(range(len(order.do))), "a run keeps all its steps", order)
        if order.final:
            _require(not running and not any(row.state == "Pending" for row in rows), "a final run has no open step", order)
        if order.state == "Processed":
            _require(not order.undo and all(row.state in ("Processed", "Skipped") for row in order.do), "Processed means done", order)
        if order.state == "Cancelled":
            _require(order.direction == "undo" and all(row.state in FINAL_STEP_STATES for row in order.undo), "all is undone", order)
        if order.state in ("Pending", "Processing"):
            ready = running or any(row.state == "Pending" and row.released for row in order.do)
            _require(ready and order.direction == "do", "an unfinished run has a step that is run or may be claimed", order)
        if order.state == "Compensating":
            waits = [row for row in order.undo if row.state == "Pending"]
            _require(running or not waits or any(row.released for row in waits), "an undo goes on", order)

    def _order_of_steps(self, order: Order) -> None:
        states = [row.state for row in order.do]
        first_open = next((n for n, state in enumerate(states) if state in _OPEN), len(states))
        _require("Processed" not in states[first_open:], "steps are done in order", order)
        for row in order.undo:
            if row.state in ("Processing", "Processed", "Error"):
                later = [other for other in order.undo if other.position > row.position]
                _require(all(other.state in ("Processed", "Skipped") for other in later), "I8 steps are undone in reverse order", order)
                _require(not any(other.state == "Processing" for other in order.do), "I8 nothing is undone while it is being done", order)

    # --------------------------------------------------------------------------------------------- the effects

    def _effects(self, order: Order) -> None:
        for row in order.do:
            place = (order.key, row.position)
            net = self.remote.net(place)
            _require(net <= 1, "I5 a step has its effect once, over all its keys", row, self.remote.keys[place])
            if net:
                known = row.effect != "none" or row.started
                _require(known, "I9 the order knows of its effect", row)
            if order.state == "Processed" and row.state == "Processed":
                _require(self.remote.has(row.key), "I6 Processed means that every effect is there", row)
            if order.state == "Cancelled" and row.can_be_undone and (order.key, row.position) not in self.waived:
                _require(net == 0, "I7 Cancelled means that nothing is left", row)
        most = self.remote.count.most_common(1)
        _require(not most or most[0][1] == 1, "I5 a key has its effect once", most)

    def _undo_order(self) -> None:
        """I8 at the remote: the effects of an order were undone in reverse order."""
        lowest: dict[str, int] = {}
        for what, (key, position) in self.remote.calls:
            if what == "undo" and (key, position) not in self.waived:
                _require(position < lowest.get(key, position + 1), "I8 effects are undone in reverse order", key, position)
                lowest[key] = position

    # ------------------------------------------------------------------------------------------ the state before

    def _onward(self, orders: dict[int, Order], rows: dict[At, Row]) -> None:
        for run_id, before in self.orders.items():
            now = orders.get(run_id)
            _require(now is not None, "I1 an order is never lost", before)
            _require(now is not None and (not before.final or now.state == before.state), "I13 a final run never moves on", before, now)
        for at, old in self.rows.items():
            row = rows.get(at)
            _require(row is not None, "a step is never lost", old)
            if row is not None:
                _require(old.state != "Processed" or row.state == "Processed", "I13 Processed never moves on", old, row)
                _require(row.attempt >= old.attempt and row.generation >= old.generation, "I10 attempts only rise", old, row)

    def unchanged(self, ats: Iterable[At], since: dict[At, Row], who: str) -> None:
        """I11: these steps have not changed; `who` had no right to change them."""
        for at in ats:
            _require(self.rows[at] == since[at], f"I11 silence of {who}", since[at], self.rows[at])
