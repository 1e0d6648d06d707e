"""Changes to whole runs: undo, cancel, resubmit, skip. They are rare, so the code is written for readability, not for speed.

Each change locks every row of its runs in one order (steps by run, direction, position; then runs). So it waits for the
hot path instead of deadlocking with it. It decides by what it reads under the lock. It reads the event numbers there
too, and writes the newest one to the rows that go on (the baton, see `step_sql`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import F, Max
from django.db.models.functions import Greatest, Now

from supervision import conf
from supervision.agent import get_agent
from supervision.errors import ChangedMeanwhile, DefinitionError
from supervision.models import Alert, Run, StepEvent, StepState
from supervision.states import ATTEMPTS_PER_EPOCH, FINAL_RUN_STATES, RUN_MOVES, STEP_MOVES, Direction, Effect, ProcessState, RunState
from supervision.store import alerts, hooks, sessions
from supervision.wakeup import hints
from supervision.workflow import ClosedRun, version_of

_RUN_MOVES = {(move.source, move.target) for move in RUN_MOVES}
_STEP_MOVES = {(move.source, move.target) for move in STEP_MOVES}
_OPEN = (ProcessState.PENDING, ProcessState.PROCESSING, ProcessState.ERROR)


class LockedRun:
    """One run with all its steps, locked until the transaction ends. `save` writes the events of the moves."""

    def __init__(self, run: Run, steps: Sequence[StepState], seq: int) -> None:
        self.run = run
        self.steps = [step for step in steps if step.direction == Direction.DO]
        self.undos = sorted((step for step in steps if step.direction == Direction.UNDO), key=lambda step: -step.position)
        self._seq = seq
        self._events: list[StepEvent] = []
        self._reason = ""

    # -------------------------------------------------------------------------------------------- single moves

    def move(self, step: StepState, to: ProcessState, actor: str, why: str = "", **fields: Any) -> None:
        """Move one step to a new state, guarded by the attempt and state that were read, and note the event."""
        _check(step.process_state, to, _STEP_MOVES)
        source = step.process_state
        if to is not ProcessState.PROCESSING:
            fields.setdefault("locked_by", None)
            fields.setdefault("complete_by", None)
        changed = StepState.objects.filter(
            run_id=step.run_id,
            direction=step.direction,
            position=step.position,
            attempt=step.attempt,
            process_state=source,
        ).update(process_state=to.value, **fields)
        if not changed:
            raise ChangedMeanwhile(f"step {step.name} changed meanwhile")
        step.process_state = to.value
        self._note(step, source, to, actor, why)

    def move_run(self, to: RunState, actor: str, why: str = "", **fields: Any) -> None:
        """Move the run itself to a new state and note the event."""
        _check(self.run.process_state, to, _RUN_MOVES)
        source = self.run.process_state
        if to in (RunState.PROCESSED, RunState.CANCELLED):
            fields["finished_at"] = Now()
        changed = Run.objects.filter(pk=self.run.pk, process_state=source).update(process_state=to.value, **fields)
        if not changed:
            raise ChangedMeanwhile("the order changed meanwhile")
        self.run.process_state = to.value
        self._reason = why
        self._note(None, source, to, actor, why)

    def _note(self, step: StepState | None, source: str, to: str, actor: str, why: str) -> None:
        self._seq += 1
        self._events.append(
            StepEvent(
                run_id=self.run.pk,
                seq=self._seq,
                position=None if step is None else step.position,
                direction=None if step is None else step.direction,
                attempt=None if step is None else step.attempt,
                from_state=source,
                to_state=str(to),
                actor=actor,
                why=why or None,
            )
        )

    def save(self) -> None:
        """Write the events, and hand the newest event's number to the rows that go on."""
        if not self._events:
            return
        StepEvent.objects.bulk_create(self._events)
        self._events.clear()
        StepState.objects.filter(run_id=self.run.pk, process_state__in=_OPEN).update(seq=Greatest(F("seq"), self._seq))

    def finish(self, state_before: str) -> None:
        """Save, and call the workflow's hook where the run has reached a new state."""
        self.save()
        if self.run.process_state != state_before:
            _call_hooks([self])
            _release_sessions([self])

    def closed(self) -> ClosedRun:
        """This run as the workflow's hooks see it."""
        return ClosedRun(run_id=self.run.pk, key=self.run.key, reason=self._reason, payload=self.run.payload)

    # ------------------------------------------------------------------------------------------------- undoing

    @property
    def failed(self) -> StepState | None:
        """The step an operator can resubmit or skip: the one in Error in the run's present direction."""
        rows = self.undos if self.run.direction == Direction.UNDO else self.steps
        return next((step for step in rows if step.process_state == ProcessState.ERROR), None)

    def to_undo(self) -> list[StepState]:
        """The forward steps that have had an effect, or may have, and can be undone; the last one first."""
        return [step for step in reversed(self.steps) if (step.effect != Effect.NONE or _has_begun(step)) and _undoable(step)]

    def undo(self, actor: str, why: str, **fields: Any) -> None:
        """Begin to undo: cancel the steps that have not begun, wait for a running one, and write undo steps for the rest.

        Undo steps run in reverse order, for every step whose effect is done or may be.
        """
        self.undos = [self._undo_of(step) for step in self.to_undo()]
        for step in self.steps:
            if step.process_state == ProcessState.PENDING or (step.process_state == ProcessState.PROCESSING and not _has_begun(step)):
                self.move(step, ProcessState.CANCELLED, actor, why, finished_at=Now())
        if not self.undos and not any(step.process_state == ProcessState.PROCESSING for step in self.steps):
            self.move_run(RunState.CANCELLED, actor, why, direction=Direction.UNDO.value, **fields)
            return
        if self.run.process_state == RunState.PENDING:  # older than the database's epoch: it may have begun in the lost time
            self.move_run(RunState.PROCESSING, actor, why)
        self.move_run(RunState.COMPENSATING, actor, why, direction=Direction.UNDO.value, **fields)
        self.run.direction = Direction.UNDO.value
        StepState.objects.bulk_create(self.undos)
        self.next_undo(actor, why)

    def _undo_of(self, step: StepState) -> StepState:
        return StepState(
            run_id=self.run.pk,
            direction=Direction.UNDO.value,
            position=step.position,
            name=step.name,
            agent=step.agent,
            process_state=ProcessState.PENDING.value,
            idempotency_key=f"{self.run.key}:{step.name}:undo:1",
            generation=1,
            failure_count=0,
            dispatch_count=0,
            # The undo of an order that is older than the database's epoch must look for effects (`StepRequest.look_first`).
            attempt=ATTEMPTS_PER_EPOCH * max(each.attempt // ATTEMPTS_PER_EPOCH for each in self.steps),
            seq=0,
            effect=Effect.NONE.value,
        )

    def next_undo(self, actor: str, why: str = "") -> None:
        """Make the next undo step due, or close the run when nothing is left to undo and nothing still runs."""
        for step in self.undos:
            if step.process_state == ProcessState.PENDING:
                self._make_due(step)
                return
            if step.process_state in _OPEN:
                return
        if not any(step.process_state == ProcessState.PROCESSING for step in self.steps):
            self.move_run(RunState.CANCELLED, actor, why or "everything is undone")

    def undo_done(self, position: int, result: Mapping[str, Any], actor: str) -> None:
        """Record that the claimed undo step at this position succeeded, and go on to the next."""
        step = next(step for step in self.undos if step.position == position)
        self.move(
            step,
            ProcessState.PROCESSED,
            actor,
            effect=Effect.DONE.value,
            finished_at=Now(),
            result=dict(result),
            last_error=None,
        )
        self.next_undo(actor)

    # --------------------------------------------------------------------------------------------- going on

    def go_on(self, actor: str, why: str = "") -> None:
        """Make the next forward step due, or close the run as Processed when none is left."""
        if self.run.direction == Direction.UNDO:
            self.next_undo(actor, why)
            return
        for step in self.steps:
            if step.process_state == ProcessState.PENDING:
                self._make_due(step)
                if self.run.process_state == RunState.ERROR:
                    self.move_run(RunState.PROCESSING, actor, why, **self.more_time())
                return
        self.move_run(RunState.PROCESSED, actor, why)

    def amend(self, changed: Mapping[str, Any]) -> None:
        """Correct fields of the run's payload. The caller decides which fields may be corrected."""
        self.run.payload = {**self.run.payload, **changed}
        Run.objects.filter(pk=self.run.pk).update(payload=self.run.payload)

    def more_time(self) -> dict[str, Any]:
        """The fields that give the order its whole time again, so that one an operator lets go on is not stopped at once."""
        try:
            within = version_of(self.run.workflow, self.run.version).complete_within
        except DefinitionError:
            return {}
        return {"complete_by": Greatest(F("complete_by"), Now() + within), "held_until": Now()}

    def _make_due(self, step: StepState) -> None:
        # Writes the baton (`seq`) too, because `save` does so only if there are events to write.
        StepState.objects.filter(run_id=step.run_id, direction=step.direction, position=step.position).update(
            **due_now(), seq=Greatest(F("seq"), self._seq)
        )


def _check(source: str, to: str, moves: set[tuple[str | None, str]]) -> None:
    if (source, str(to)) not in moves:
        raise ChangedMeanwhile(f"{source} cannot become {to}")


def due_now() -> dict[str, Any]:
    """The fields of a Pending step that is to run now. If it waits beyond `complete_by` without a reason, it counts as starving."""
    return {"not_before": Now(), "turn_at": Now(), "complete_by": Now() + conf.get().pickup_within}


def _has_begun(step: StepState) -> bool:
    return step.process_state == ProcessState.PROCESSING and step.started_at is not None


def _undoable(step: StepState) -> bool:
    try:
        return get_agent(step.agent).undoable
    except DefinitionError:
        return True  # this code no longer has the agent: its undo step ends in Error, where an operator sees it


def lock(run_ids: Sequence[int]) -> Changing:
    """Lock these runs and all their steps until the transaction ends.

    Iterate over the result. When the iteration ends, it saves what was done to each run and calls the hooks.
    """
    return Changing(run_ids)


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
        numbers = dict(StepEvent.objects.filter(run_id__in=ids).values_list("run_id").annotate(Max("seq")))
        self.runs = [LockedRun(run, steps[run.pk], numbers.get(run.pk, 0)) for run in runs]

    def __iter__(self) -> Iterator[LockedRun]:
        before = {locked.run.pk: locked.run.process_state for locked in self.runs}
        yield from self.runs
        for locked in self.runs:
            locked.save()
        changed = [locked for locked in self.runs if locked.run.process_state != before[locked.run.pk]]
        _call_hooks(changed)
        _release_sessions(changed)


def _call_hooks(changed: Sequence[LockedRun]) -> None:
    calls: dict[tuple[str, int, str], list[ClosedRun]] = {}
    for locked in changed:
        run = locked.run
        calls.setdefault((run.workflow, run.version, run.process_state), []).append(locked.closed())
    for call, runs in calls.items():
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
                locked.undo(actor, compensate[locked.run.pk])
            else:
                locked.go_on(actor)
    if errors:
        _tell_of_errors(errors)


def _tell_of_errors(run_ids: Sequence[int]) -> None:
    calls: dict[tuple[str, int], list[ClosedRun]] = {}
    for run in Run.objects.filter(pk__in=run_ids):
        calls.setdefault((run.workflow, run.version), []).append(ClosedRun(run_id=run.pk, key=run.key, reason="", payload=run.payload))
    for version, runs in calls.items():
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
        step = next((step for step in locked.steps if step.process_state == ProcessState.PENDING), None)
        busy = any(step.process_state == ProcessState.PROCESSING for step in locked.steps)
        if step is None or busy or locked.run.process_state not in (RunState.PENDING, RunState.PROCESSING):
            continue
        if locked.run.process_state == RunState.PENDING:
            locked.move_run(RunState.PROCESSING, actor, why)
        locked.move(step, ProcessState.ERROR, actor, why, last_error=why)
        locked.move_run(RunState.ERROR, actor, why)
        raise_alert(step, Alert.Kind.ERROR, why, "overdue")
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
