"""One run with all its rows locked: the single moves of its steps and of the run itself, and what follows from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.db.models import F
from django.db.models.functions import Greatest, Now

from supervision import conf
from supervision.agent import get_agent
from supervision.errors import ChangedMeanwhile, DefinitionError
from supervision.models import Run, StepEvent, StepState
from supervision.postgres import db
from supervision.states import ATTEMPTS_PER_EPOCH, FINAL_RUN_STATES, RUN_MOVES, STEP_MOVES, Direction, Effect, ProcessState, RunState
from supervision.store import sleeping
from supervision.store.runs import beginning_again, plan_rows
from supervision.workflow import ClosedRun, version_of

_RUN_MOVES = {(move.source, move.target) for move in RUN_MOVES}
_STEP_MOVES = {(move.source, move.target) for move in STEP_MOVES}
_OPEN = (ProcessState.PENDING, ProcessState.PROCESSING, ProcessState.ERROR)


_COUNT = """
UPDATE supervision_stepstate s SET waits_for = v.number
  FROM unnest(%(positions)s::smallint[], %(numbers)s::smallint[]) v(position, number)
 WHERE s.run_id = %(run)s AND s.direction = 'do' AND s.position = v.position
"""
_NUMBER = """
UPDATE supervision_run r SET event_seq = v.seq, open_steps = v.open
  FROM unnest(%(runs)s::bigint[], %(seqs)s::int[], %(open)s::int[]) v(run_id, seq, open) WHERE r.id = v.run_id
"""
_HAND_ON = """
UPDATE supervision_stepstate s SET seq = greatest(s.seq, v.seq)
  FROM unnest(%(runs)s::bigint[], %(seqs)s::int[]) v(run_id, seq)
 WHERE s.run_id = v.run_id AND s.process_state || '' IN ('Pending', 'Processing', 'Error')
"""


class LockedRun:
    """One run with all its steps, locked until the transaction ends. `save` writes the events of the moves."""

    def __init__(self, run: Run, steps: Sequence[StepState], seq: int) -> None:
        self.run = run
        self.steps = [step for step in steps if step.direction == Direction.DO]
        self.undos = sorted((step for step in steps if step.direction == Direction.UNDO), key=lambda step: -step.position)
        self._seq = seq
        self._events: list[StepEvent] = []
        self._reason = ""

    @property
    def newest(self) -> int:
        """The number of the run's newest event, written or noted."""
        return self._seq

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
        if self.run.process_state == RunState.PROCESSED and self.run.parent_key is None:
            raise ChangedMeanwhile(f"{self.run.process_state} cannot become {to}: the run is no child of another run")
        source = self.run.process_state
        if to in FINAL_RUN_STATES:
            fields["finished_at"] = Now()
        elif source in FINAL_RUN_STATES:
            fields["finished_at"] = None
        changed = Run.objects.filter(pk=self.run.pk, process_state=source).update(process_state=to.value, **fields)
        if not changed:
            raise ChangedMeanwhile("the order changed meanwhile")
        self.run.process_state = to.value
        self._reason = why
        self._note(None, source, to, actor, why)

    def note(self, actor: str, why: str) -> None:
        """Note in the history what happened to the run, whose state stays the same."""
        self._note(None, self.run.process_state, self.run.process_state, actor, why)

    def note_step(self, step: StepState, source: str, actor: str, why: str) -> None:
        """Note that this step, which was in that state, is as its row says."""
        self._note(step, source, step.process_state, actor, why)

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
        save_all([self])

    def closed(self) -> ClosedRun:
        """This run as the workflow's hooks see it."""
        return ClosedRun(run_id=self.run.pk, key=self.run.key, reason=self._reason, payload=self.run.payload)

    # ------------------------------------------------------------------------------------------------- undoing

    @property
    def branches(self) -> bool:
        """Whether its plan branches. Otherwise its steps run one after another."""
        return self.run.event_seq is not None

    @property
    def failed(self) -> list[StepState]:
        """The steps an operator can resubmit or skip: those in Error in the run's present direction. In a list there is at most one."""
        rows = self.undos if self.run.direction == Direction.UNDO else self.steps
        return [step for step in rows if step.process_state == ProcessState.ERROR]

    def to_undo(self) -> list[StepState]:
        """The forward steps that have had an effect, or may have, and can be undone; the last one first."""
        heard = self._heard()
        had = [step for step in reversed(self.steps) if step.effect != Effect.NONE or is_running(step) or step is heard]
        return [step for step in had if _undoable(step)]

    def _heard(self) -> StepState | None:
        """The first step that is not done and of whose agent's `evidence` a signal is here that no step has taken."""
        not_done = [step for step in self.steps if step.process_state != ProcessState.PROCESSED]
        told = {name for step in not_done for name in _evidence(step)}
        here = sleeping.untaken(self.run.key, told) if told else set()
        return next((step for step in not_done if here.intersection(_evidence(step))), None)

    def undo(self, actor: str, why: str, *, leave: Callable[[StepState], None] | None = None, **fields: Any) -> None:
        """Begin to undo: cancel the steps that have not begun, wait for a running one, and write undo steps for the rest.

        Undo steps run in reverse order, for every step whose effect is done or may be. leave: is called with each of them before
        one is due, and may skip it.
        """
        self.undos = self.undo_steps(self.to_undo())
        if self.branches:
            plan_rows.order_undo(self.steps, self.undos)
        for step in self.steps:
            if step.process_state == ProcessState.PENDING or (step.process_state == ProcessState.PROCESSING and not is_running(step)):
                self.move(step, ProcessState.CANCELLED, actor, why, finished_at=Now())
        if not self.undos and not any(step.process_state == ProcessState.PROCESSING for step in self.steps):
            self.move_run(RunState.CANCELLED, actor, why, direction=Direction.UNDO.value, **fields)
            return
        if self.run.process_state == RunState.PENDING:  # older than the database's epoch: it may have begun in the lost time
            self.move_run(RunState.PROCESSING, actor, why)
        self.move_run(RunState.COMPENSATING, actor, why, direction=Direction.UNDO.value, **fields)
        self.run.direction = Direction.UNDO.value
        StepState.objects.bulk_create(self.undos)
        self.note_undone_again(self.undos, actor, why)
        if leave is not None:
            for undo in self.undos:
                leave(undo)
        self.next_undo(actor, why)

    def undo_steps(self, steps: Sequence[StepState]) -> list[StepState]:
        """The undo steps of these steps, not written yet.

        One that was undone before, because the run went on from an earlier step, gets a new key and counts its attempts on.
        """
        before = beginning_again.undone_before(self.run.pk) if any(step.generation > 1 for step in steps) else {}
        return [self._undo_of(step, before.get(step.position, 0)) for step in steps]

    def note_undone_again(self, undos: Sequence[StepState], actor: str, why: str) -> None:
        """Note the undo steps that begin a second time."""
        for undo in undos:
            if undo.attempt % ATTEMPTS_PER_EPOCH:
                self.note_step(undo, ProcessState.PROCESSED, actor, why)

    def _undo_of(self, step: StepState, claims: int) -> StepState:
        generation = step.generation if claims else 1
        return StepState(
            run_id=self.run.pk,
            direction=Direction.UNDO.value,
            position=step.position,
            name=step.name,
            agent=step.agent,
            process_state=ProcessState.PENDING.value,
            idempotency_key=f"{self.run.key}:{step.name}:undo:{generation}",
            generation=generation,
            failure_count=0,
            dispatch_count=0,
            # The undo of an order that is older than the database's epoch must look for effects (`StepRequest.look_first`).
            attempt=ATTEMPTS_PER_EPOCH * max(each.attempt // ATTEMPTS_PER_EPOCH for each in self.steps) + claims,
            seq=0,
            effect=Effect.NONE.value,
            branch=step.branch,
        )

    def next_undo(self, actor: str, why: str = "") -> None:
        """Make the next undo step due (in each branch), or close the run when nothing is left to undo and nothing still runs."""
        if self.branches:
            if self.run.process_state != RunState.COMPENSATING:
                return
            self._make_ready_due(self.undos)
            if any(step.process_state in _OPEN for step in self.undos):
                return
        for step in self.undos:
            if step.process_state == ProcessState.PENDING:
                self._make_due(step)
                return
            if step.process_state in _OPEN:
                return
        if any(step.process_state == ProcessState.PROCESSING for step in self.steps):
            return
        if self.run.resume_from is not None:
            beginning_again.turn_round(self, actor, why or "everything is undone, the order goes on")
            return
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
        if self.branches and any(step.process_state in _OPEN for step in self.steps):
            self._go_on_in_branches(actor, why)
            return
        for step in self.steps:
            if step.process_state == ProcessState.PENDING:
                self._make_due(step)
                if self.run.process_state == RunState.ERROR:
                    self.move_run(RunState.PROCESSING, actor, why, **self.more_time())
                return
        self.move_run(RunState.PROCESSED, actor, why)

    def _go_on_in_branches(self, actor: str, why: str) -> None:
        if self.failed:  # the run stays in Error until the last of them is settled
            self.hold_back()
            return
        self._make_ready_due(self.steps)
        self._count(0)
        if self.run.process_state == RunState.ERROR:
            self.move_run(RunState.PROCESSING, actor, why, **self.more_time())

    def hold_back(self) -> None:
        """Let the waiting steps of a run in Error wait until it goes on."""
        sleeping.hold_back(self.run.pk, self.run.direction)
        for step in self.undos if self.run.direction == Direction.UNDO else self.steps:
            step.not_before = None
        if self.run.direction == Direction.DO:
            self._count(1)

    def _count(self, held: int) -> None:
        """Write what each Pending step waits for. held: 1 while the run is in Error, which holds all of them."""
        left = plan_rows.unfinished(self.steps)
        found = [step for step in self.steps if step.process_state == ProcessState.PENDING and step.waits_for != left[step.position] + held]
        for step in found:
            step.waits_for = left[step.position] + held
        if found:
            facts = {"run": self.run.pk, "positions": [step.position for step in found], "numbers": [step.waits_for for step in found]}
            db.fetch(_COUNT, facts)

    def _make_ready_due(self, rows: Sequence[StepState]) -> None:
        for step in plan_rows.ready(rows):
            self._make_due(step)

    def hear_again(self, step: StepState) -> None:
        """Let a failed step hear once more the evidence that it took in its last wait: its agent may have noted nothing of it."""
        if step.awaits_attempt is not None and step.direction == Direction.DO and (told := _evidence(step)):
            sleeping.take_back(self.run.key, step.name, told, step.awaits_attempt)

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


def save_all(runs: Sequence[LockedRun]) -> None:
    """Save what was noted of these runs, in as many statements as one run takes."""
    StepEvent.objects.bulk_create([event for each in runs for event in each._events])
    branching = [each for each in runs if each.branches]
    if branching:
        still = [sum(step.process_state in _OPEN for step in each.steps) for each in branching]
        db.fetch(_NUMBER, {**_numbers(branching), "open": still})
    if onward := [each for each in runs if each._events and not each.branches]:
        db.fetch(_HAND_ON, _numbers(onward))
    for each in runs:
        each._events.clear()


def _numbers(runs: Sequence[LockedRun]) -> dict[str, list[int]]:
    return {"runs": [each.run.pk for each in runs], "seqs": [each._seq for each in runs]}


def _check(source: str, to: str, moves: set[tuple[str | None, str]]) -> None:
    if (source, str(to)) not in moves:
        raise ChangedMeanwhile(f"{source} cannot become {to}")


def due_now() -> dict[str, Any]:
    """The fields of a Pending step that is to run now. If it waits beyond `complete_by` without a reason, it counts as starving."""
    return {"not_before": Now(), "turn_at": Now(), "complete_by": Now() + conf.get().pickup_within}


def is_running(step: StepState) -> bool:
    """Whether an agent has started its attempt, which has not ended."""
    return step.process_state == ProcessState.PROCESSING and step.started_at is not None


def _evidence(step: StepState) -> tuple[str, ...]:
    try:
        return get_agent(step.agent).evidence
    except DefinitionError:
        return ()


def _undoable(step: StepState) -> bool:
    try:
        return get_agent(step.agent).undoable
    except DefinitionError:
        return True  # this code no longer has the agent: its undo step ends in Error, where an operator sees it
