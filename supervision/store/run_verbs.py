"""Changes to whole runs: undo, cancel, resubmit, skip. They are rare, so the code is written for readability, not for speed.

Each change locks every row of its runs in one order (steps by run, direction, position; then runs). So it waits for the
hot path instead of deadlocking with it. It decides by what it reads under the lock. It reads the event numbers there
too, and writes the newest one to the rows that go on (the baton, see `step_sql`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from django.db import OperationalError, transaction
from django.db.models.functions import Now
from psycopg.errors import SerializationFailure

from supervision.models import Alert, Run, StepState
from supervision.postgres import db
from supervision.states import FINAL_RUN_STATES, ProcessState, RunState
from supervision.store import alerts, hooks, sessions
from supervision.store.runs import unstarted_children
from supervision.store.runs.locked_run import LockedRun, save_all
from supervision.wakeup import hints
from supervision.workflow import ClosedRun

log = logging.getLogger(__name__)
TOLD = (*FINAL_RUN_STATES, RunState.ERROR)  # the states that are a line in the log

# The newest event of each of these runs, and how many steps it has.
_NUMBERS = """
SELECT v.run_id, coalesce((SELECT max(e.seq) FROM supervision_stepevent e WHERE e.run_id = v.run_id), 0),
       (SELECT count(*) FROM supervision_stepstate s WHERE s.run_id = v.run_id)
  FROM unnest(%(runs)s::bigint[]) v(run_id)
"""


def lock(run_ids: Sequence[int]) -> Changing:
    """Lock these runs and all their steps until the transaction ends.

    Iterate over the result. When the iteration ends, it saves what was done to each run and calls the hooks. A transaction that
    held the lock before may have written further steps, which this one has not seen and not locked: then it raises the error of
    a lost race, and `db.transact` begins again.
    """
    return Changing(run_ids)


def is_as_read(locked: LockedRun) -> bool:
    """Whether nothing was written to this run since it was locked, by this transaction, as no other one can: each change is an event."""
    rows = db.fetch(_NUMBERS, {"runs": [locked.run.pk]})
    return bool(rows[0][1:] == (locked.newest, len(locked.steps) + len(locked.undos)))


class Changing:
    """The locked runs of one transaction."""

    def __init__(self, run_ids: Sequence[int]) -> None:
        ids = list(run_ids)
        steps: dict[int, list[StepState]] = {run_id: [] for run_id in ids}
        rows = StepState.objects.select_for_update().filter(run_id__in=ids)
        for step in rows.order_by("run_id", "direction", "position"):
            steps[step.run_id].append(step)
        runs = list(Run.objects.select_for_update().filter(pk__in=ids).order_by("pk"))
        # A new statement, so its snapshot is newer than every lock above.
        self.runs = []
        numbers = {run_id: facts for run_id, *facts in db.fetch(_NUMBERS, {"runs": ids})}
        for run in runs:
            newest, count = numbers[run.pk]
            if count != len(steps[run.pk]):
                raise OperationalError("steps of a run were written while its lock was awaited") from SerializationFailure()
            self.runs.append(LockedRun(run, steps[run.pk], newest))

    def __iter__(self) -> Iterator[LockedRun]:
        before = {locked.run.pk: locked.run.process_state for locked in self.runs}
        yield from self.runs
        finish(self.runs, [before[locked.run.pk] for locked in self.runs])


def finish(runs: Sequence[LockedRun], before: Sequence[str]) -> None:
    """Save what was done to these runs, and call the workflow's hook where a run has left the state that it had before."""
    save_all(runs)
    changed = [locked for locked, state in zip(runs, before, strict=True) if locked.run.process_state != state]
    _call_hooks(changed)
    _release_sessions(changed)


def _call_hooks(changed: Sequence[LockedRun]) -> None:
    calls: dict[tuple[str, int, str], list[ClosedRun]] = {}
    for locked in changed:
        run = locked.run
        calls.setdefault((run.workflow, run.version, run.process_state), []).append(locked.closed())
    for call, runs in calls.items():
        if call[2] in TOLD:
            tell_of_ends(call[2], [run.key for run in runs])
        hooks.tell(*call, runs)


def _release_sessions(changed: Sequence[LockedRun]) -> None:
    """After the commit, release the next order in the session of each run that has ended."""
    ended = [it.run.pk for it in changed if it.run.session_key is not None and it.run.process_state in FINAL_RUN_STATES]
    if ended:
        transaction.on_commit(partial(_release, ended))


def _release(ended: Sequence[int]) -> None:
    sessions.release(ended)
    hints.send(hints.SCHEDULE)


def after_settling(
    *,
    errors: Sequence[int],
    skipped: Sequence[int],
    abandoned: Sequence[int],
    compensate: Mapping[int, str],
    actor: str,
) -> None:
    """Act on settled failures, in their transaction: undo, go on without the step, call the workflow's hooks."""
    involved = sorted({*skipped, *abandoned, *compensate})
    if involved:
        for locked in lock(involved):
            if locked.run.pk in compensate:
                if locked.branches:  # another branch may have been in Error
                    alerts.close(locked.run.pk)
                locked.undo(actor, compensate[locked.run.pk])
            else:
                if locked.run.pk in skipped:
                    _drop_children_of_skipped(locked)
                locked.go_on(actor)
    if errors:
        _tell_of_errors(errors)


def _drop_children_of_skipped(locked: LockedRun) -> None:
    for step in locked.steps:
        if step.process_state == ProcessState.SKIPPED:
            unstarted_children.drop(step, locked.run.key)


def tell_of_ends(state: str, keys: Sequence[str]) -> None:
    """Log one line that names these runs, which have reached a final state or Error, once the transaction has committed."""
    if keys and log.isEnabledFor(logging.INFO):
        some = f"run {keys[0]} is" if len(keys) == 1 else f"{len(keys)} runs ({' '.join(keys)}) are"
        transaction.on_commit(partial(log.info, "%s %s", some, state))


def _tell_of_errors(run_ids: Sequence[int]) -> None:
    calls: dict[tuple[str, int], list[ClosedRun]] = {}
    for run in Run.objects.filter(pk__in=run_ids):
        calls.setdefault((run.workflow, run.version), []).append(ClosedRun(run_id=run.pk, key=run.key, reason="", payload=run.payload))
    for version, runs in calls.items():
        tell_of_ends(RunState.ERROR, [run.key for run in runs])
        hooks.tell(*version, RunState.ERROR, runs)


def close_undone(run_ids: Sequence[int], actor: str = "supervisor") -> int:
    """Close those of these runs that are being undone and have nothing left to undo. Returns how many."""
    from_db = Run.objects.filter(pk__in=run_ids, process_state=RunState.COMPENSATING)
    ids = sorted(from_db.values_list("pk", flat=True))
    if not ids:
        return 0
    count = 0
    for locked in lock(ids):
        if locked.run.process_state == RunState.COMPENSATING:
            locked.next_undo(actor)
            count += locked.run.process_state == RunState.CANCELLED
    return count


def hold_back(run_ids: Sequence[int]) -> None:
    """Hold back the waiting steps of those of these runs that are in Error, in the transaction of the failure that stopped them."""
    for locked in lock(run_ids):
        if locked.run.process_state == RunState.ERROR:
            locked.hold_back()


def go_on_with_stuck(run_ids: Sequence[int], actor: str) -> int:
    """Go on with those of these runs in which no step is running, claimable or in Error. Returns how many."""
    count = 0
    for locked in lock(run_ids):
        waits = any(
            step.process_state in (ProcessState.PROCESSING, ProcessState.ERROR)
            or (step.process_state == ProcessState.PENDING and step.not_before is not None)
            for step in locked.steps
        )
        begun = locked.run.process_state == RunState.PROCESSING
        if waits or not locked.steps or not (begun or (locked.run.process_state == RunState.PENDING and locked.run.session_key is None)):
            continue
        if not begun and not any(step.process_state == ProcessState.PENDING for step in locked.steps):
            continue
        locked.go_on(actor, "the order stood still: the change that should have followed was lost")
        count += 1
    return count


def stop_overdue(run_ids: Sequence[int], actor: str) -> int:
    """Put runs whose whole time is over in Error, with an alert. Returns how many. Runs with a running step are left alone."""
    why = "the time for the whole order is over"
    count = 0
    changing = lock(run_ids)
    still = set(Run.objects.filter(pk__in=run_ids, complete_by__lt=Now()).values_list("pk", flat=True))
    for locked in changing:
        if locked.run.pk not in still:
            continue
        waiting = [step for step in locked.steps if step.process_state == ProcessState.PENDING]
        due = [step for step in waiting if step.not_before is not None]
        awake = [step for step in due if step.turn_at is not None]  # a wait in another branch is not what takes so long
        step = next(iter(awake or due or waiting), None)
        busy = any(step.process_state == ProcessState.PROCESSING for step in locked.steps)
        if step is None or busy or locked.run.process_state not in (RunState.PENDING, RunState.PROCESSING):
            continue
        if locked.run.process_state == RunState.PENDING:
            locked.move_run(RunState.PROCESSING, actor, why)
        locked.move(step, ProcessState.ERROR, actor, why, last_error=why)
        locked.move_run(RunState.ERROR, actor, why)
        raise_alert(step, Alert.Kind.ERROR, why, "overdue")
        if locked.branches:
            locked.hold_back()
        count += 1
    return count


def raise_alert(step: StepState, kind: Alert.Kind, message: str, code: str = "") -> None:
    """Raise an alert of this step, in the transaction of the change that made it necessary."""
    alerts.raise_one(
        run=step.run_id,
        position=step.position,
        direction=step.direction,
        generation=step.generation,
        kind=kind,
        step=step.name,
        message=message,
        code=code,
    )
