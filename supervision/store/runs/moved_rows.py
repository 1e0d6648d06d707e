"""The rows of a run that moves to a newer version of its workflow: what has begun stays, and the rest is written again.

The caller has locked the whole run, and nothing of it runs, so no process holds a claim that the old plan led to. A step that
may have begun keeps its place, because its history, its effects and the late answers of its attempts name the place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from supervision.errors import ChangedMeanwhile
from supervision.models import Run, StepState
from supervision.postgres import db
from supervision.states import ATTEMPTS_PER_EPOCH, Direction, Effect, ProcessState, RunState
from supervision.store.runs.locked_run import LockedRun, due_now
from supervision.workflow import Shape, Workflow

_DONE = (ProcessState.PROCESSED, ProcessState.SKIPPED)
_DUE = ("not_before", "turn_at", "complete_by")
_DELETE = """
DELETE FROM supervision_stepstate s
 USING unnest(%(runs)s::bigint[], %(positions)s::smallint[]) v(run_id, position)
 WHERE s.run_id = v.run_id AND s.direction = 'do' AND s.position = v.position AND s.process_state || '' = 'Pending'
RETURNING s.run_id
"""
_REPLAN = """
UPDATE supervision_stepstate s SET after = v.after::smallint[], branch = v.branch, waits_for = v.waits_for
  FROM unnest(%(runs)s::bigint[], %(positions)s::smallint[], %(states)s::text[], %(attempts)s::int[], %(afters)s::text[],
              %(branches)s::smallint[], %(waits)s::smallint[]) v(run_id, position, state, attempt, after, branch, waits_for)
 WHERE s.run_id = v.run_id AND s.direction = 'do' AND s.position = v.position AND s.process_state || '' = v.state
   AND s.attempt = v.attempt
RETURNING s.run_id
"""
_VERSIONS = """
UPDATE supervision_run r SET version = v.new, event_seq = v.count, open_steps = v.count
  FROM unnest(%(runs)s::bigint[], %(olds)s::smallint[], %(states)s::text[], %(news)s::smallint[], %(counts)s::int[])
       v(run_id, old, state, new, count)
 WHERE r.id = v.run_id AND r.version = v.old AND r.process_state = v.state
RETURNING r.id
"""
_CLOSE_ALERTS = """
UPDATE supervision_alert a SET closed_at = now()
  FROM unnest(%(runs)s::bigint[], %(positions)s::smallint[]) v(run_id, position)
 WHERE a.run_id = v.run_id AND a.direction = 'do' AND a.position = v.position AND a.closed_at IS NULL
"""


def is_done(step: StepState) -> bool:
    """Whether the steps that come after it may begin."""
    return step.process_state in _DONE


def has_begun(step: StepState) -> bool:
    """Whether the step was claimed or settled, and not undone since: an undone step is written anew, and nothing is known of it."""
    anew = step.generation > 1 and step.started_at is None and step.awaits is None and step.effect == Effect.NONE
    return step.process_state != ProcessState.PENDING or (step.attempt % ATTEMPTS_PER_EPOCH > 0 and not anew)


def may_have_begun(step: StepState) -> bool:
    """Whether the step has begun, or was open when an epoch of the database began, so that a lost attempt may exist.

    One that was done by hand and then undone has no attempt, but a new key: its undo would be repeated under the old one.
    """
    return step.process_state != ProcessState.PENDING or step.attempt > 0 or step.generation > 1


class Rewritten(NamedTuple):
    """What a run gets from the new version. again: its rows that are deleted and written anew. before: the plan of the kept ones."""

    locked: LockedRun
    workflow: Workflow
    why: str
    old: Mapping[int, StepState]
    steps: Sequence[StepState]
    before: Mapping[int, Mapping[str, Any]]

    @property
    def again(self) -> set[int]:
        """The places whose rows are deleted and written anew."""
        return {place for place, step in self.old.items() if step.process_state == ProcessState.PENDING and not _asleep(step)}

    @property
    def created(self) -> list[StepState]:
        """The rows that are written."""
        kept = self.old.keys() - self.again
        return [step for step in self.steps if step.position not in kept]

    @property
    def changed(self) -> list[StepState]:
        """The kept rows that depend on other steps than before."""
        kept = self.old.keys() - self.again
        return [step for step in self.steps if step.position in kept and _plan_of(step) != self.before[step.position]]

    @property
    def renamed(self) -> list[int]:
        """The places that have another step now, or none."""
        names = {step.position: step.name for step in self.steps}
        return [place for place, step in self.old.items() if names.get(place) != step.name]


def planned(locked: LockedRun, workflow: Workflow, why: str) -> Rewritten:
    """The rows of the run under this version. The caller has checked that each step that may have begun has its place in it."""
    run, old = locked.run, {step.position: step for step in locked.steps}
    kept = {place: step for place, step in old.items() if may_have_begun(step)}
    before = {place: _plan_of(step) for place, step in kept.items()}
    steps = [kept.get(place) or _new(locked, workflow, place) for place in range(len(workflow.steps))]
    _shape(steps, workflow.shape, held=run.process_state == RunState.ERROR)
    begins = next((step for place, step in sorted(old.items()) if place not in kept and step.not_before is not None), None)
    for step in steps:
        if step.process_state != ProcessState.PENDING:
            continue
        if step.waits_for or not _is_next(step, steps):  # one that was due and has not begun may come after others now
            step.not_before = step.turn_at = step.complete_by = None
        elif step.not_before is None:
            _make_due(step, begins, run)
    return Rewritten(locked, workflow, why, old, steps, before)


def rewrite(runs: Sequence[Rewritten], actor: str) -> None:
    """Give these runs the plans of their new versions, in as many statements as one run takes.

    Raises ChangedMeanwhile where a row is not as it was read: then nothing may be committed.
    """
    _write(runs)
    _close_alerts(runs)
    numbered = [None if each.workflow.shape is None else 0 for each in runs]  # `save` writes the number of the newest event
    rows = db.fetch(
        _VERSIONS,
        {
            "runs": [each.locked.run.pk for each in runs],
            "olds": [each.locked.run.version for each in runs],
            "states": [each.locked.run.process_state for each in runs],
            "news": [each.workflow.version for each in runs],
            "counts": numbered,
        },
    )
    if len(rows) != len(runs):
        raise ChangedMeanwhile("the order changed meanwhile")
    for each, number in zip(runs, numbered, strict=True):
        locked = each.locked
        locked.run.version, locked.run.event_seq = each.workflow.version, number
        locked.steps = list(each.steps)
        locked.note(actor, each.why)
        if locked.run.process_state == RunState.PROCESSING and all(map(is_done, locked.steps)):
            locked.move_run(RunState.PROCESSED, actor, each.why)


def _new(locked: LockedRun, workflow: Workflow, place: int) -> StepState:
    definition = workflow.steps[place]
    # A run that is older than the database's epoch may have moved before, and begun the step, in the time that was lost.
    epoch = max(step.attempt // ATTEMPTS_PER_EPOCH for step in locked.steps)
    lost = epoch > 0 and not workflow.agent(place).transactional
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
        attempt=ATTEMPTS_PER_EPOCH * epoch,
        seq=0,
        effect=(Effect.UNKNOWN if lost else Effect.NONE).value,
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
def _write(runs: Sequence[Rewritten]) -> None:
    gone = [(each.locked.run.pk, place) for each in runs for place in each.again]
    if gone and len(db.fetch(_DELETE, _places(gone))) != len(gone):
        raise ChangedMeanwhile("the order changed meanwhile")
    StepState.objects.bulk_create([step for each in runs for step in each.created])
    changed = [(each.locked.run.pk, step) for each in runs for step in each.changed]
    if not changed:
        return
    params = {
        **_places([(run_id, step.position) for run_id, step in changed]),
        "states": [str(step.process_state) for _, step in changed],
        "attempts": [step.attempt for _, step in changed],
        "afters": [None if step.after is None else "{" + ",".join(map(str, step.after)) + "}" for _, step in changed],
        "branches": [step.branch for _, step in changed],
        "waits": [step.waits_for for _, step in changed],
    }
    if len(db.fetch(_REPLAN, params)) != len(changed):
        raise ChangedMeanwhile("a step changed meanwhile")


def _places(places: Sequence[tuple[int, int]]) -> dict[str, list[int]]:
    return {"runs": [run_id for run_id, _ in places], "positions": [place for _, place in places]}


def _plan_of(step: StepState) -> Mapping[str, Any]:
    """How the step depends on others."""
    return {"after": step.after, "branch": step.branch, "waits_for": step.waits_for}


def _asleep(step: StepState) -> bool:
    return step.not_before is not None and step.turn_at is None


def _close_alerts(runs: Sequence[Rewritten]) -> None:
    """Close the alerts about steps that are no longer at their place."""
    if places := [(each.locked.run.pk, place) for each in runs for place in each.renamed]:
        db.fetch(_CLOSE_ALERTS, _places(places))
