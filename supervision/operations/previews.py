"""What an operator's verb would do to a run: shown before it is done, and compared when it is."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field

from django.utils.translation import gettext as _

from supervision.deadletters import of_orders
from supervision.errors import ChangedMeanwhile, Refused, UnknownRun
from supervision.models import ArchivedRun, Run, StepState, Submission
from supervision.states import FINAL_RUN_STATES, Direction, Effect, ProcessState
from supervision.store.runs import leaving
from supervision.store.runs.locked_run import LockedRun

UNDOING = ("compensate", "cancel", "abandon")  # these end a run
_OPEN_UNDO = (ProcessState.PENDING, ProcessState.ERROR)


@dataclass(frozen=True)
class PlanStep:
    """One step of a plan. action: `run`, `keep`, `skip`, `leave`, `complete`, `add` or `remove`.

    `leave`: an undo step that is left out, so that what it would undo stays. key_reused: the service has seen this key.
    """

    name: str
    direction: str
    action: str
    idempotency_key: str
    key_reused: bool


@dataclass(frozen=True)
class Plan:
    """What a verb would do to a run in its present state; `version` changes when the run changes.

    refusals: why it cannot be done now, one sentence each. Only of the verbs that move a run, begin again, and cancel without undo.
    """

    version: str
    steps: list[PlanStep]
    refusals: list[str] = field(default_factory=list)

    @property
    def has_choice(self) -> bool:
        """Whether several steps may be completed, and the operator chooses one."""
        return sum(step.action == "complete" for step in self.steps) > 1


def plan(key: str, action: str = "resubmit") -> Plan:
    """What `action` (resubmit, skip, complete, compensate, cancel, abandon or signal) would do to the run in its present state."""
    if action not in ("resubmit", "skip", "compensate", "cancel", "abandon", "signal", "complete"):
        raise Refused(_("There is no action %(action)s.") % {"action": action}, "unknown_action")
    return _plan(as_it_is(key), action)


def as_it_is(key: str) -> LockedRun:
    """The run of this public id to look at: it is not locked. Raises UnknownRun, or Refused where it is archived."""
    run = Run.objects.filter(key=key).first()
    if run is None:
        raise without_run(key)
    return LockedRun(run, list(StepState.objects.filter(run=run).order_by("direction", "position")), 0)


def _plan(locked: LockedRun, action: str) -> Plan:
    undoing = action in UNDOING or locked.run.direction == Direction.UNDO
    rows: list[PlanStep] = []
    failed = locked.failed
    completable = may_be_completed(locked)
    here = leaving.begun(locked)
    for step in [*locked.steps, *locked.undos]:
        what, key = "keep", step.idempotency_key
        if action == "complete" and step in completable:
            what = "complete"
        elif step in failed and action in ("resubmit", "skip"):
            what = "run" if action == "resubmit" else "skip"
            if action == "resubmit" and step.effect == Effect.NONE:
                key = key_of(locked, step, step.generation + 1)
        elif action == "abandon" and step.direction == Direction.UNDO and step.process_state in _OPEN_UNDO:
            what = "leave" if leaving.stays(step, here) else "run"
        elif step.process_state == ProcessState.PENDING:
            what = "skip" if undoing and step.direction == Direction.DO else "run"
        rows.append(PlanStep(step.name, step.direction, what, key, step.attempt > 0 and key == step.idempotency_key))
    if action in UNDOING and (locked.run.direction == Direction.DO or locked.run.resume_from is not None):
        written = {step.position for step in locked.undos}
        undos = locked.undo_steps([step for step in locked.to_undo() if step.position not in written])
        left = [action == "abandon" and leaving.stays(step, here) for step in undos]
        rows += [
            PlanStep(step.name, Direction.UNDO, "leave" if stays else "run", step.idempotency_key, False)
            for step, stays in zip(undos, left, strict=True)
        ]
    return Plan(version=seen(locked), steps=rows, refusals=leaving.hindrances(locked) if action == "abandon" else [])


def seen(locked: LockedRun, *about: str | int) -> str:
    """The version of a plan: it changes when the run changes. about: what else the caller decided."""
    rows = {
        f"{step.direction}:{step.position}": [step.process_state, step.attempt, step.generation] for step in [*locked.steps, *locked.undos]
    }
    return hashlib.sha256(json.dumps([locked.run.process_state, rows, *about], sort_keys=True).encode()).hexdigest()[:16]


def same_plan(locked: LockedRun, version: str | None, *about: str | int) -> None:
    """Raise ChangedMeanwhile if the run has changed since the caller looked at the plan of this version. about: as for `seen`."""
    if version is not None and version != seen(locked, *about):
        raise ChangedMeanwhile(_("The order has changed since the plan was made. Look again before acting."))


def still_here(key: str) -> None:
    """Raise Refused if the run of this public id is archived."""
    if ArchivedRun.objects.filter(key=key).exists():
        raise Refused(_("The order ended long ago and is archived: nothing about it can be changed."), "archived")


def without_run(key: str) -> Refused | UnknownRun:
    """The error of a verb that needs a run, for a public id that has none: it says why. Raises Refused where the run is archived."""
    still_here(key)
    submission = Submission.objects.filter(public_id=key).first()
    if submission is None:
        return UnknownRun(key)
    letter = of_orders.letter_of(key) if submission.consumed_at is not None else None
    if letter is not None:
        return Refused(of_orders.in_words(letter), "dead_letter")
    return Refused(_("The order is still waiting to be taken up."), "not_taken_up")


def key_of(locked: LockedRun, step: StepState, generation: int) -> str:
    """The idempotency key of this generation of the step."""
    return f"{locked.run.key}:{step.name}:{step.direction}:{generation}"


def may_be_completed(locked: LockedRun) -> list[StepState]:
    """The steps that an operator may complete: those in Error, and those that wait for a signal or a moment."""
    if locked.run.process_state in FINAL_RUN_STATES:
        return []
    asleep = [step for step in locked.steps if locked.run.direction == Direction.DO and is_asleep(step)]
    return [*locked.failed, *asleep]


def is_asleep(step: StepState) -> bool:
    """Whether it waits for a signal or a moment."""
    return step.process_state == ProcessState.PENDING and step.not_before is not None and step.turn_at is None
