"""The supervisor: finds steps whose complete_by has passed and has them recovered. It never calls an agent and knows
no business operation; scheduler and agents carry out its decisions.

Safe to repeat and safe to run twice at once: each recovery locks the row and names the attempt that it ends.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from supervision import conf
from supervision.dispatch import scheduler
from supervision.incidents import lifecycle
from supervision.intake import schedules, submission
from supervision.plans import unknown_versions
from supervision.postgres import db
from supervision.recovery import corrected_clock, failures, held_time
from supervision.recovery.decisions import Tally
from supervision.runtime import failpoints, periodic
from supervision.runtime.identity import me
from supervision.store import epochs, run_verbs, sessions, sleeping
from supervision.telemetry import measures
from supervision.wakeup import hints

log = logging.getLogger(__name__)


@dataclass
class SweepReport:
    """What one sweep found and decided. relayed: hints sent again for work that no process had picked up."""

    overdue: int = 0
    retried: int = 0
    redispatched: int = 0
    waiting: int = 0
    compensating: int = 0
    errors: int = 0
    relayed: int = 0

    def add(self, tally: Tally) -> None:
        """Add the counts of one batch."""
        self.overdue += tally.total
        self.retried += tally.retried
        self.redispatched += tally.redispatched
        self.waiting += tally.waiting
        self.compensating += tally.compensating
        self.errors += tally.errors


def sweep_once() -> SweepReport:
    """Recover everything that is overdue, batch by batch, then send hints again for waiting work.

    1. Expired claims: counted if they had started, then retried, made to wait, undone or handed to an operator.
    2. Orders whose own time is over while their step waits; orders being undone with nothing left to undo;
       orders none of whose steps can run.
    3. Steps whose wait is over: they may be claimed. Schedules whose time has come: their runs are accepted.
    4. Submissions and due steps whose hint was lost: the hint is sent again.
    5. Incidents, which tell people: opened, counted and closed.

    If a part raises, the parts after it still run, unless the database is away; the first error is raised at the end.
    """
    report = SweepReport()
    size, began = conf.get().sweep_batch, time.monotonic()
    parts: tuple[Callable[[], object], ...] = (
        epochs.look,
        lambda: failures.recall(size),
        lambda: corrected_clock.look(size),
        lambda: _recover(report, size),
        lambda: _stop_overdue_runs(report, size),
        lambda: _close_undone(size),
        lambda: _go_on_with_stuck(size),
        sessions.release_forgotten,
        lambda: _wake(size),
        schedules.start_due,
        lambda: _relay(report),
        lifecycle.look,
    )
    try:
        periodic.call_each(parts)
    except Exception as error:
        _count(report, began, "cut_short" if db.is_away(error) else "failed")
        raise
    _count(report, began, "done")
    return report


def _count(report: SweepReport, began: float, outcome: str) -> None:
    measures.SWEEPS.add(outcome)
    measures.SWEEP_SECONDS.observe(time.monotonic() - began)
    _count_decisions(report)


def _count_decisions(report: SweepReport) -> None:
    for decision in ("retried", "redispatched", "waiting", "compensating", "errors", "relayed"):
        if number := getattr(report, decision):
            measures.RECOVERED.add(decision, number=number)


def sweep_for_the_leader() -> int:
    """Recover the expired claims whose plans this process knows and the leading supervisor does not; returns how many."""
    report = SweepReport()
    if versions := unknown_versions.beyond_the_leader():
        try:
            _recover(report, conf.get().sweep_batch, versions)
        finally:
            _count_decisions(report)
    return report.overdue


def _wake(size: int) -> None:
    """Make the steps claimable whose wait is over."""
    while sleeping.wake_due(size) == size:
        pass


def _recover(report: SweepReport, size: int, versions: Sequence[str] | None = None) -> None:
    """Settle expired claims until none is left. Runs that cannot be settled now are passed over until the next sweep."""
    left: set[int] = set()
    taken = size
    while taken == size:
        tally = failures.sweep(size, left, versions=versions)
        report.add(tally)
        taken = tally.taken


# The page after (%(at)s, %(run)s): a run that cannot be changed is passed, so that it does not hide the runs after it.
# The steps are read per run, by key: the cost depends on the runs being undone, not on the size of the steps' table.
_UNDONE = """
SELECT r.created_at, r.id FROM supervision_run r
 WHERE r.process_state = 'Compensating' AND (r.created_at, r.id) > (%(at)s::timestamptz, %(run)s::bigint)
   AND NOT EXISTS (SELECT FROM supervision_stepstate s
                    WHERE s.run_id = r.id AND (s.process_state || '' IN ('Pending', 'Processing')
                                               OR (s.process_state || '' = 'Error' AND s.direction = 'undo')))
 ORDER BY r.created_at, r.id LIMIT %(limit)s
"""


# A window of the unfinished runs, checked per run by the keys of its steps; the next sweep checks the next window. Between two
# statements every such run has an open step. A run without one has lost the work that should have followed. Pending runs of a
# session are left to `sessions`.
_STANDING_STILL = """
WITH page AS MATERIALIZED (
    SELECT r.process_state, r.created_at, r.id, r.session_key FROM supervision_run r
     WHERE r.process_state IN ('Pending', 'Processing') AND (r.process_state, r.created_at, r.id)
           > (%(state)s, %(at)s::timestamptz, %(run)s::bigint)
     ORDER BY r.process_state, r.created_at, r.id LIMIT %(window)s)
SELECT p.process_state, p.created_at, p.id, (p.session_key IS NULL OR p.process_state = 'Processing') AND NOT EXISTS (
       SELECT FROM supervision_stepstate s
        WHERE s.run_id = p.id AND (s.process_state || '' IN ('Processing', 'Error')
                                   OR (s.process_state || '' = 'Pending' AND s.not_before IS NOT NULL)))
  FROM page p ORDER BY p.process_state, p.created_at, p.id
"""
WINDOW = 2_000
_window_after: tuple[str, Any, int] = ("", "-infinity", 0)


def _go_on_with_stuck(limit: int) -> None:
    """Go on with unfinished runs without a step that runs or may be claimed: make the next step due, or end the run."""
    global _window_after
    state, at, run = _window_after
    rows = db.run(_STANDING_STILL, {"state": state, "at": at, "run": run, "window": WINDOW})
    _window_after = rows[-1][:3] if len(rows) == WINDOW else ("", "-infinity", 0)
    stuck = sorted(run_id for _, _, run_id, stands in rows if stands)
    for first in range(0, len(stuck), limit):
        _change(stuck[first : first + limit], run_verbs.go_on_with_stuck)


def _stop_overdue_runs(report: SweepReport, limit: int) -> None:
    """Hand runs to an operator that are past their own complete_by, held time not counted, and whose open step is Pending."""
    for ids in held_time.overdue(limit):
        report.errors += _change(ids, run_verbs.stop_overdue)


def _close_undone(limit: int) -> None:
    """Close runs being undone whose worker died between the last undo and the end of the run."""
    for ids in _pages(_UNDONE, limit):
        _change(ids, run_verbs.close_undone)


def _pages(statement: str, limit: int) -> Iterator[list[int]]:
    """The runs that a statement finds, page by page, each run once."""
    at, run = "-infinity", 0
    while rows := db.run(statement, {"at": at, "run": run, "limit": limit}):
        at, run = rows[-1]
        yield sorted(run_id for _, run_id in rows)
        if len(rows) < limit:
            return


def _change(ids: Sequence[int], change: Callable[[Sequence[int], str], int]) -> int:
    """Change these runs in one commit. If that fails, change each run in its own commit, so that only the faulty run is left."""
    if not ids:
        return 0
    try:
        return db.transact(lambda: change(ids, me()))
    except Exception as error:
        if db.passes(error):
            raise
        log.exception("could not change %d orders", len(ids))
        return sum(_change([run_id], change) for run_id in ids) if len(ids) > 1 else 0


def _relay(report: SweepReport) -> None:
    """Send hints again for work whose hint was lost: submissions that wait too long, steps that are due."""
    if submission.waiting(conf.get().relay_after.total_seconds()):
        report.relayed += hints.publish(hints.CONSUME)
    if scheduler.due():
        report.relayed += hints.publish(hints.SCHEDULE)
    if report.relayed:
        failpoints.hit("relay.after_publish")
