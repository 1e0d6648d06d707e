"""The rows of a run that moves to a newer version of its workflow: what has begun stays, and the rest is written again.

The caller has locked the whole run, and nothing of it runs, so no process holds a claim that the old plan led to. A step that
may have begun keeps its place, because its history, its effects and the late answers of its attempts name the place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db.models.functions import Now

from supervision.errors import ChangedMeanwhile
from supervision.models import Alert, Run, StepState
from supervision.states import ATTEMPTS_PER_EPOCH, Direction, ProcessState, RunState
from supervision.store.runs.locked_run import LockedRun, due_now
from supervision.workflow import Shape, Workflow

_DONE = (ProcessState.PROCESSED, ProcessState.SKIPPED)
_DUE = ("not_before", "turn_at", "complete_by")


def is_done(step: StepState) -> bool:
    """Whether the steps that come after it may begin."""
    return step.process_state in _DONE


def has_begun(step: StepState) -> bool:
    """Whether the step was ever claimed or settled."""
    return step.process_state != ProcessState.PENDING or step.attempt % ATTEMPTS_PER_EPOCH > 0


def may_have_begun(step: StepState) -> bool:
    """Whether the step has begun, or was open when an epoch of the database began, so that a lost attempt may exist."""
    return step.process_state != ProcessState.PENDING or step.attempt > 0


def rewrite(locked: LockedRun, workflow: Workflow, actor: str, why: str) -> None:
    """Give the run the plan of this version. The caller has checked that each step that may have begun has its place in it.

    Raises ChangedMeanwhile where a row is not as it was read.
    """
    run, old = locked.run, {step.position: step for step in locked.steps}
    kept = {place: step for place, step in old.items() if may_have_begun(step)}
    before = {place: _plan_of(step) for place, step in kept.items()}
    steps = [kept.get(place) or _new(locked, workflow, place) for place in range(len(workflow.steps))]
    _shape(steps, workflow.shape, held=run.process_state == RunState.ERROR)
    begins = next((step for place, step in sorted(old.items()) if place not in kept and step.not_before is not None), None)
    for step in steps:
        if step.process_state == ProcessState.PENDING and step.not_before is None and not step.waits_for and _is_next(step, steps):
            _make_due(step, begins, run)
    _write(run.pk, list(old.values()), steps, before)
    _close_alerts(run.pk, old, steps)
    numbered = None if workflow.shape is None else 0  # `save` writes the number of the newest event
    counted = {"event_seq": numbered, "open_steps": numbered}
    if not Run.objects.filter(pk=run.pk, version=run.version, process_state=run.process_state).update(version=workflow.version, **counted):
        raise ChangedMeanwhile("the order changed meanwhile")
    run.version, run.event_seq = workflow.version, numbered
    locked.steps = steps
    locked.note(actor, why)
    if run.process_state == RunState.PROCESSING and all(map(is_done, steps)):
        locked.move_run(RunState.PROCESSED, actor, why)


def _new(locked: LockedRun, workflow: Workflow, place: int) -> StepState:
    definition = workflow.steps[place]
    return StepState(
        run_id=locked.run.pk,
        direction=Direction.DO.value,
        position=place,
        name=definition.name,
        agent=definition.agent,
        process_state=ProcessState.PENDING.value,
        idempotency_key=f"{locked.run.key}:{definition.name}:do:1",
        generation=1,
        failure_count=0,
        dispatch_count=0,
        attempt=0,
        seq=0,
        effect="none",
    )


def _shape(steps: Sequence[StepState], shape: Shape | None, *, held: bool) -> None:
    """Write into these rows how they depend on each other. held: the run is in Error, which holds back all of them."""
    for step in steps:
        step.after, step.branch, step.waits_for = None, 0, None
    if shape is None:
        return
    done = {step.position for step in steps if is_done(step)}
    for step in steps:
        before = shape.after[step.position]
        step.after, step.branch = list(before), shape.branch[step.position]
        step.waits_for = sum(place not in done for place in before) + (held and step.process_state == ProcessState.PENDING)


def _is_next(step: StepState, steps: Sequence[StepState]) -> bool:
    """Whether nothing comes before it any more. In a graph its count says so."""
    return step.after is not None or all(map(is_done, steps[: step.position]))


def _make_due(step: StepState, begins: StepState | None, run: Run) -> None:
    """Give a step whose turn has come the turn of the one that it replaces. A run of a session that waits has none yet."""
    if begins is not None:
        for name in _DUE:
            setattr(step, name, getattr(begins, name))
    elif run.process_state == RunState.PROCESSING:
        for name, value in due_now().items():
            setattr(step, name, value)


# Pending rows that a claim may be reading are deleted and written anew. A claim reads the run's version from the snapshot in
# which it found the row, and waits for no lock: with the same row it would take the step under the old version. A row asleep is
# not found by claims, but by a signal that is on its way, so it is changed in its place, like what is done or in Error.
def _write(run_id: int, old: Sequence[StepState], steps: Sequence[StepState], before: Mapping[int, Mapping[str, Any]]) -> None:
    again = [step for step in old if step.process_state == ProcessState.PENDING and not _asleep(step)]
    places = {step.position for step in again}
    mine = StepState.objects.filter(run_id=run_id, direction=Direction.DO.value)
    gone, _ = mine.filter(position__in=places, process_state=ProcessState.PENDING).delete() if again else (0, {})
    if gone != len(again):
        raise ChangedMeanwhile("the order changed meanwhile")
    here = {step.position for step in old} - places
    StepState.objects.bulk_create([step for step in steps if step.position not in here])
    for step in (step for step in steps if step.position in here and _plan_of(step) != before[step.position]):
        if not mine.filter(position=step.position, process_state=step.process_state, attempt=step.attempt).update(**_plan_of(step)):
            raise ChangedMeanwhile(f"step {step.name} changed meanwhile")


def _plan_of(step: StepState) -> Mapping[str, Any]:
    """How the step depends on others."""
    return {"after": step.after, "branch": step.branch, "waits_for": step.waits_for}


def _asleep(step: StepState) -> bool:
    return step.not_before is not None and step.turn_at is None


def _close_alerts(run_id: int, old: Mapping[int, StepState], steps: Sequence[StepState]) -> None:
    names = {step.position: step.name for step in steps}
    places = [place for place, step in old.items() if names.get(place) != step.name]
    if places:
        Alert.objects.filter(run_id=run_id, direction=Direction.DO.value, position__in=places, closed_at__isnull=True).update(
            closed_at=Now()
        )
