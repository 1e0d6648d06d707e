"""A run that goes on from an earlier step: the later steps are undone first, and then they run again.

While it undoes, the run's `resume_from` is the position of that step. Its other steps are held as in a run in Error. When nothing
is left to undo, the same transaction writes the rows of the undone steps anew, under new keys: no row ever leaves Processed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from django.db.models import Count
from django.db.models.functions import Now

from supervision.errors import ChangedMeanwhile
from supervision.models import Child, ChildState, Run, StepEvent, StepState
from supervision.states import ATTEMPTS_PER_EPOCH, Direction, Effect, ProcessState, RunState
from supervision.store.runs import plan_rows

if TYPE_CHECKING:
    from supervision.store.runs.locked_run import LockedRun

_KEPT = ("run_id", "direction", "position", "name", "agent", "after", "branch", "waits_for")


def scope(steps: Sequence[StepState], position: int) -> list[StepState]:
    """The step at this position and all that come after it, in their order."""
    found = {position}
    for step in steps:
        if step.position > position if step.after is None else found.intersection(step.after):
            found.add(step.position)
    return [step for step in steps if step.position in found]


def begin(locked: LockedRun, position: int, actor: str, why: str) -> None:
    """Begin to undo the step at this position and what came after it, or turn round at once where nothing is to be undone.

    The caller has checked that no step runs and that every effect can be undone.
    """
    run = locked.run
    locked.hold_back()
    undoable = {step.position for step in locked.to_undo()}
    undos = [step for step in reversed(scope(locked.steps, position)) if step.position in undoable]
    run.resume_from = position
    if not undos:
        turn_round(locked, actor, why)
        return
    _write_undos(locked, undos, actor, why)
    locked.move_run(RunState.COMPENSATING, actor, why, direction=Direction.UNDO.value, resume_from=position)
    run.direction = Direction.UNDO.value
    locked.next_undo(actor, why)


def _write_undos(locked: LockedRun, steps: Sequence[StepState], actor: str, why: str) -> None:
    """Write the undo steps of these steps beside those that the run has."""
    rows = locked.undo_steps(steps)
    here = locked.undos
    locked.undos = sorted([*here, *rows], key=lambda step: -step.position)
    if locked.branches:
        plan_rows.order_undo(locked.steps, locked.undos)
        for undo in here:
            StepState.objects.filter(run_id=undo.run_id, direction=undo.direction, position=undo.position).update(after=undo.after)
    StepState.objects.bulk_create(rows)
    locked.note_undone_again(rows, actor, why)


def undo_the_rest(locked: LockedRun, actor: str, why: str, **fields: Any) -> None:
    """Undo the whole run, which was to go on from an earlier step: it ends Cancelled. fields: what else is written to the run."""
    run = locked.run
    if not Run.objects.filter(pk=run.pk, resume_from=run.resume_from).update(resume_from=None, **fields):
        raise ChangedMeanwhile("the order changed meanwhile")
    run.resume_from = None
    for step in locked.steps:
        if step.process_state == ProcessState.PENDING:
            locked.move(step, ProcessState.CANCELLED, actor, why, finished_at=Now())
    here = {undo.position for undo in locked.undos}
    _write_undos(locked, [step for step in locked.to_undo() if step.position not in here], actor, why)
    locked.note(actor, why)
    if run.process_state == RunState.COMPENSATING:
        locked.next_undo(actor, why)


def turn_round(locked: LockedRun, actor: str, why: str) -> None:
    """Everything is undone: write the undone steps anew, and go on from the earliest of them."""
    run, position = locked.run, locked.run.resume_from
    if position is None:
        raise ChangedMeanwhile("the order changed meanwhile")
    epoch = max(step.attempt // ATTEMPTS_PER_EPOCH for step in [*locked.steps, *locked.undos])
    undone = {undo.position: undo.generation for undo in locked.undos}
    again = [step for step in scope(locked.steps, position) if step.process_state != ProcessState.PENDING or step.attempt > 0]
    fresh = {step.position: _anew(run.key, step, max(step.generation, undone.get(step.position, 0)) + 1, epoch) for step in again}
    mine = StepState.objects.filter(run_id=run.pk)
    gone, _ = mine.filter(direction=Direction.UNDO.value).delete()
    gone_too, _ = mine.filter(direction=Direction.DO.value, position__in=list(fresh)).delete()
    if (gone, gone_too) != (len(locked.undos), len(fresh)):
        raise ChangedMeanwhile("the order changed meanwhile")
    StepState.objects.bulk_create(fresh.values())
    # The children of the undone steps are over. A step that is done anew finds their payloads anew.
    over = [ChildState.CANCELLED.value, ChildState.PROCESSED.value]  # Processed: an operator has recorded that it was undone
    given_up = Child.objects.filter(parent_key=run.key, step__in=[step.name for step in fresh.values()], state__in=over)
    given_up.update(state=ChildState.REPLACED.value)
    for step in again if locked.branches else reversed(again):  # the last event of a list names the step that is next
        if step.process_state != ProcessState.PENDING:
            locked.note_step(fresh[step.position], step.process_state, actor, why)
    locked.steps = [fresh.get(step.position, step) for step in locked.steps]
    locked.undos = []
    run.direction, run.resume_from = Direction.DO.value, None
    forward = {"direction": Direction.DO.value, "resume_from": None}
    if run.process_state == RunState.PROCESSING:
        Run.objects.filter(pk=run.pk).update(**locked.more_time())
        locked.note(actor, why)
    else:
        locked.move_run(RunState.PROCESSING, actor, why, **forward, **locked.more_time())
    locked.go_on(actor, why)


def _anew(key: str, step: StepState, generation: int, epoch: int) -> StepState:
    """The row of this step before it began, under a new key. Its attempts count on, so that no old answer meets a new attempt."""
    return StepState(
        **{name: getattr(step, name) for name in _KEPT},
        process_state=ProcessState.PENDING.value,
        attempt=step.attempt % ATTEMPTS_PER_EPOCH + ATTEMPTS_PER_EPOCH * epoch,
        generation=generation,
        idempotency_key=f"{key}:{step.name}:{step.direction}:{generation}",
        seq=0,
        effect=Effect.NONE.value,
        failure_count=0,
        dispatch_count=0,
    )


def undone_before(run_id: int) -> dict[int, int]:
    """How often the undo of each step of this run has been claimed, by position."""
    claims = StepEvent.objects.filter(run_id=run_id, direction=Direction.UNDO.value, to_state=ProcessState.PROCESSING.value)
    return dict(claims.values_list("position").annotate(Count("seq")))  # type: ignore[arg-type]
