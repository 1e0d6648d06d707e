"""The supervisor: finds steps whose complete_by has passed and has them recovered. It never calls an agent and knows
no business operation; what it decides, scheduler and agents carry out.

Safe to repeat and safe to run twice at once: each recovery names the attempt it breaks, on a row it has locked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from django.db import InterfaceError, OperationalError

from supervision import changes, conf, db, failpoints, hints, recovery, scheduler, sessions, submission
from supervision.identity import me
from supervision.recovery import Tally

log = logging.getLogger(__name__)


@dataclass
class SweepReport:
    """What one sweep found and asked for. relayed: hints sent again for work nobody had picked up."""

    overdue: int = 0
    retried: int = 0
    redispatched: int = 0
    waiting: int = 0
    compensating: int = 0
    errors: int = 0
    relayed: int = 0

    def add(self, tally: Tally) -> None:
        """Count what one batch came to."""
        self.overdue += tally.total
        self.retried += tally.retried
        self.redispatched += tally.redispatched
        self.waiting += tally.waiting
        self.compensating += tally.compensating
        self.errors += tally.errors


def sweep_once() -> SweepReport:
    """Recover everything that is overdue, batch by batch, then see that waiting work is known to somebody.

    1. Expired claims: counted if they had started, then retried, made to wait, undone or put before an operator.
    2. Orders whose own time is over while their step waits; orders being undone with nothing left to undo.
    3. Pending steps nobody picks up: an alert, no count.
    4. Submissions and due steps whose hint was lost: hinted at again.
    """
    report = SweepReport()
    size = conf.get().sweep_batch
    recovery.recall(size)
    while True:
        tally = recovery.sweep(size)
        report.add(tally)
        if tally.total < size:
            break
    report.errors += _stop_overdue_runs(size)
    _close_undone(size)
    sessions.release_forgotten()
    recovery.alert_starving(size)
    report.relayed = _relay()
    return report


def _stop_overdue_runs(limit: int) -> int:
    """Runs past their own complete_by whose open step is Pending: in Error, in front of an operator."""
    rows = db.run(
        "SELECT r.id FROM supervision_run r WHERE r.complete_by < now() AND r.process_state IN ('Pending', 'Processing')"
        " AND NOT EXISTS (SELECT FROM supervision_stepstate s WHERE s.run_id = r.id"
        " AND s.process_state || '' = 'Processing') ORDER BY r.complete_by LIMIT %(limit)s",
        {"limit": limit},
    )
    ids = sorted(row[0] for row in rows)
    return _change(ids, changes.stop_overdue)


def _close_undone(limit: int) -> None:
    """Runs being undone whose worker died between the last undo and the end."""
    # Asked per run, by its key: the cost follows the runs being undone, not the table of steps.
    rows = db.run(
        "SELECT r.id FROM supervision_run r WHERE r.process_state = 'Compensating' AND NOT EXISTS ("
        "SELECT FROM supervision_stepstate s WHERE s.run_id = r.id AND (s.process_state || '' IN ('Pending', 'Processing')"
        " OR (s.process_state || '' = 'Error' AND s.direction = 'undo'))) LIMIT %(limit)s",
        {"limit": limit},
    )
    _change(sorted(row[0] for row in rows), changes.close_undone)


def _change(ids: Sequence[int], change: Callable[[Sequence[int], str], int]) -> int:
    """Change these runs in one commit; where that fails (a hook's own mistake), each in its own, leaving the culprit."""
    if not ids:
        return 0
    try:
        return db.transact(lambda: change(ids, me()))
    except (OperationalError, InterfaceError):
        raise
    except Exception:
        log.exception("could not change %d orders", len(ids))
        return sum(_change([run_id], change) for run_id in ids) if len(ids) > 1 else 0


def _relay() -> int:
    """Hint again at work whose hint was lost: submissions that wait too long, steps that are due."""
    relayed = 0
    if submission.waiting(conf.get().relay_after.total_seconds()):
        relayed += hints.publish(hints.CONSUME)
    if scheduler.due():
        relayed += hints.publish(hints.SCHEDULE)
    if relayed:
        failpoints.hit("relay.after_publish")
    return relayed
