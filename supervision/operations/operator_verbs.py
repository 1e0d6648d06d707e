"""The verbs of operators and customers. Each takes the actor, a reason and the state that the actor saw.

Each verb locks the whole run and reads it again. It then acts completely or raises Refused with a message. The audit entry
commits with the action.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models.functions import Now
from django.utils.translation import gettext as _

from supervision.errors import ChangedMeanwhile, DefinitionError, Refused, UnknownRun, UnreadableSubmission
from supervision.incidents import incident_sql
from supervision.models import Alert, ArchivedRun, DeadLetter, Incident, Run, StepState, Submission
from supervision.operations import requeue
from supervision.operations.audit_log import Actor, log, name_of
from supervision.postgres import db
from supervision.signals.sending import send_signal
from supervision.states import FINAL_RUN_STATES, Direction, Effect, ProcessState, RunState
from supervision.store import run_verbs
from supervision.store.run_verbs import LockedRun
from supervision.wakeup import hints
from supervision.workflow import version_of


@dataclass(frozen=True)
class PlanStep:
    """One step of a plan. action: `run`, `keep` or `skip`. key_reused: the remote service has seen this key."""

    name: str
    direction: str
    action: str
    idempotency_key: str
    key_reused: bool


@dataclass(frozen=True)
class Plan:
    """What a verb would do to a run in its present state; `version` changes when the run changes."""

    version: str
    steps: list[PlanStep]


# ------------------------------------------------------------------------------------------------------- verbs


def cancel(key: str, *, by: Actor, reason: str) -> str:
    """Cancel an order; returns its state. It ends Cancelled (or Error while an undo is stuck), never Processed.

    Works before the submission is consumed, too. Does nothing more while the order is already being undone. Raises
    Refused once the order is Processed or Cancelled.
    """
    _demand(reason)
    state = db.transact(lambda: _cancel(key, by, reason))
    hints.send(hints.SCHEDULE)
    return state


def _cancel(key: str, by: Actor, reason: str) -> str:
    submission = Submission.objects.select_for_update().filter(public_id=key).first()
    # A dead letter's order can be cancelled too: if an operator requeues it later, it ends Cancelled.
    if submission is not None and (submission.consumed_at is None or not Run.objects.filter(key=key).exists()):
        _still_here(key)
        if submission.cancel_requested_at is None:
            Submission.objects.filter(pk=submission.pk).update(cancel_requested_at=Now(), cancelled_by=name_of(by), cancel_reason=reason)
            log(by, submission, f"cancel: {reason}")
        return RunState.PENDING
    locked = _locked(key)
    state = locked.run.process_state
    if state in FINAL_RUN_STATES:
        raise Refused(_("The order is %(state)s and can no longer be cancelled.") % {"state": state}, "not_cancellable")
    if locked.run.direction == Direction.UNDO:
        return state
    return _do(locked, by, "cancel", reason, lambda: _undo(locked, name_of(by), reason, cancel_requested_at=Now()))


def _undo(locked: LockedRun, actor: str, reason: str, **fields: Any) -> None:
    if locked.failed is not None:
        _acknowledge_step(locked.failed, actor)
    locked.undo(actor, reason, **fields)


def compensate(key: str, *, by: Actor, reason: str, plan_version: str | None = None) -> str:
    """Undo everything that was done or may have been done, in reverse order; returns the run's state."""
    _demand(reason)

    def work() -> str:
        locked = _locked(key)
        _same_plan(locked, "compensate", plan_version)
        if locked.run.process_state in FINAL_RUN_STATES or locked.run.direction == Direction.UNDO:
            raise Refused(
                _("The order is %(state)s and cannot be undone.") % {"state": locked.run.process_state},
                "not_undoable",
            )
        return _do(locked, by, "undo", reason, lambda: _undo(locked, name_of(by), reason))

    state = db.transact(work)
    hints.send(hints.SCHEDULE)
    return state


def resubmit(
    key: str,
    *,
    by: Actor,
    reason: str,
    attempt: int | None = None,
    new_generation: bool = False,
    amend: Mapping[str, Any] | None = None,
    plan_version: str | None = None,
) -> str:
    """Run the failed step again, and only it; returns the run's state.

    attempt: the attempt that the caller saw. Of several callers that saw the same attempt, the first one wins.
    new_generation: give the step a new idempotency key although its effect is unknown. A step whose effect is `none` gets
        a new key in any case.
    amend: corrections to the payload, of the fields that the step's definition allows.
    """
    _demand(reason)

    def work() -> str:
        locked = _locked(key)
        step = _failed(locked, attempt)
        _same_plan(locked, "resubmit", plan_version)
        changed = _amended(locked, step, amend or {})
        why = f"{reason} ({changed})" if changed else reason
        return _do(locked, by, "resubmit", why, lambda: _revive(locked, step, name_of(by), why, new_generation))

    state = db.transact(work)
    hints.send(hints.SCHEDULE)
    return state


def skip(key: str, *, by: Actor, reason: str, attempt: int | None = None, plan_version: str | None = None) -> str:
    """Go on without the failed step; returns the run's state."""
    _demand(reason)

    def work() -> str:
        locked = _locked(key)
        step = _failed(locked, attempt)
        _same_plan(locked, "skip", plan_version)

        def act() -> None:
            actor = name_of(by)
            locked.move(step, ProcessState.SKIPPED, actor, reason, finished_at=Now())
            _acknowledge_step(step, actor)
            if locked.run.direction == Direction.UNDO:
                locked.move_run(RunState.COMPENSATING, actor, reason)
            locked.go_on(actor, reason)

        return _do(locked, by, "skip", reason, act)

    state = db.transact(work)
    hints.send(hints.SCHEDULE)
    return state


def signal(key: str, name: str, *, by: Actor, reason: str, payload: Mapping[str, Any] | None = None, signal_key: str | None = None) -> str:
    """Send the order a signal, in the place of the sender that should have sent it; returns the run's state.

    signal_key: the same key has one effect. Raises what `send_signal` raises.
    """
    _demand(reason)

    def work() -> str:
        send_signal(key, name, payload, key=signal_key, sent_by=name_of(by), reason=reason)
        run = Run.objects.filter(key=key).first()
        log(by, run or Submission.objects.get(public_id=key), f"signal {name}: {reason}")
        return run.process_state if run else RunState.PENDING.value

    return db.transact(work)


def acknowledge(alert_ids: Sequence[int], *, by: Actor) -> int:
    """Record that the actor has seen these alerts; returns how many were not yet acknowledged."""

    def work() -> int:
        alerts = list(Alert.objects.select_for_update().filter(pk__in=alert_ids, acknowledged_at__isnull=True))
        for alert in alerts:
            log(by, alert, "acknowledged")
        ids = [alert.pk for alert in alerts]
        return Alert.objects.filter(pk__in=ids).update(acknowledged_at=Now(), acknowledged_by=name_of(by))

    return db.transact(work)


def acknowledge_incident(pk: int, *, by: Actor, reason: str) -> None:
    """Record that the actor takes care of an incident and has seen its alerts. It stays open; repeating is harmless.

    Raises Refused where there is no such incident, or no reason is given.
    """
    _demand(reason)

    def work() -> None:
        db.fetch(incident_sql.LOCK)
        incident = Incident.objects.filter(pk=pk).first()
        if incident is None:
            raise Refused(_("There is no incident %(number)s.") % {"number": pk}, "unknown_incident")
        facts = {"id": pk, "by": name_of(by), "reason": reason}
        if db.fetch(incident_sql.ACKNOWLEDGE, facts):
            db.fetch(incident_sql.ACKNOWLEDGE_ALERTS, facts)
            log(by, incident, f"acknowledged: {reason}")

    db.transact(work)


def requeue_dead_letter(pk: int, *, by: Actor, reason: str) -> str:
    """Put a dead letter back where it came from, byte for byte. Returns the submission's public id, or else the letter's number."""
    _demand(reason)

    def work() -> str:
        letter = _open_letter(pk)
        went = requeue.give_back(letter)
        _resolve(letter, by, f"requeued: {reason}")
        return went

    went = db.transact(work)
    hints.send(hints.CONSUME)
    hints.send(hints.DELIVER)
    return went


def discard_dead_letter(pk: int, *, by: Actor, reason: str) -> None:
    """Close a dead letter for good; its bytes are kept."""
    _demand(reason)
    db.transact(lambda: _resolve(_open_letter(pk), by, f"discarded: {reason}"))


def plan(key: str, action: str = "resubmit") -> Plan:
    """What `action` (resubmit, skip, compensate, cancel or signal) would do to the run in its present state."""
    if action not in ("resubmit", "skip", "compensate", "cancel", "signal"):
        raise Refused(_("There is no action %(action)s.") % {"action": action}, "unknown_action")
    run = Run.objects.filter(key=key).first()
    if run is None:
        _still_here(key)
        raise UnknownRun(key)
    steps = list(StepState.objects.filter(run=run).order_by("direction", "position"))
    return _plan(LockedRun(run, steps, 0), action)


# ------------------------------------------------------------------------------------------------------ pieces


def _plan(locked: LockedRun, action: str) -> Plan:
    undoing = action in ("compensate", "cancel") or locked.run.direction == Direction.UNDO
    rows: list[PlanStep] = []
    failed = locked.failed
    seen = {}
    for step in [*locked.steps, *locked.undos]:
        seen[f"{step.direction}:{step.position}"] = [step.process_state, step.attempt, step.generation]
        what, key = "keep", step.idempotency_key
        if step is failed and action in ("resubmit", "skip"):
            what = "run" if action == "resubmit" else "skip"
            if action == "resubmit" and step.effect == Effect.NONE:
                key = _key(locked, step, step.generation + 1)
        elif step.process_state == ProcessState.PENDING:
            what = "skip" if undoing and step.direction == Direction.DO else "run"
        rows.append(PlanStep(step.name, step.direction, what, key, step.attempt > 0 and key == step.idempotency_key))
    if action in ("compensate", "cancel") and locked.run.direction == Direction.DO:
        rows += [PlanStep(step.name, Direction.UNDO, "run", f"{locked.run.key}:{step.name}:undo:1", False) for step in locked.to_undo()]
    digest = hashlib.sha256(json.dumps([locked.run.process_state, seen], sort_keys=True).encode())
    return Plan(version=digest.hexdigest()[:16], steps=rows)


def _same_plan(locked: LockedRun, action: str, version: str | None) -> None:
    if version is not None and version != _plan(locked, action).version:
        raise ChangedMeanwhile(_("The order has changed since the plan was made. Look again before acting."))


def _locked(key: str) -> LockedRun:
    run_id = Run.objects.filter(key=key).values_list("pk", flat=True).first()
    if run_id is None:
        _still_here(key)
        raise UnknownRun(key)
    return run_verbs.lock([run_id]).runs[0]


def _still_here(key: str) -> None:
    if ArchivedRun.objects.filter(key=key).exists():
        raise Refused(_("The order ended long ago and is archived: nothing about it can be changed."), "archived")


def _do(locked: LockedRun, by: Actor, verb: str, reason: str, act: Callable[[], None]) -> str:
    before = locked.run.process_state
    act()
    locked.finish(before)
    log(by, locked.run, f"{verb}: {reason}")
    return locked.run.process_state


def _failed(locked: LockedRun, attempt: int | None) -> StepState:
    step = locked.failed
    if locked.run.process_state != RunState.ERROR or step is None:
        if attempt is not None:
            raise ChangedMeanwhile(_("The order is %(state)s now: another request was faster.") % {"state": locked.run.process_state})
        raise Refused(_("The order is %(state)s: no step is in Error.") % {"state": locked.run.process_state}, "not_in_error")
    if attempt is not None and step.attempt != attempt:
        raise ChangedMeanwhile(
            _("You saw attempt %(seen)s of %(step)s, it is at attempt %(now)s now.")
            % {"seen": attempt, "step": step.name, "now": step.attempt}
        )
    return step


def _key(locked: LockedRun, step: StepState, generation: int) -> str:
    return f"{locked.run.key}:{step.name}:{step.direction}:{generation}"


def _revive(locked: LockedRun, step: StepState, actor: str, why: str, new_generation: bool) -> None:
    fields: dict[str, Any] = {**run_verbs.due_now(), "failure_count": 0, "dispatch_count": 0, "failing_since": None, "blamed_count": None}
    fields |= {"awaits": None, "awaits_until": None, "awaits_attempt": None}
    if new_generation or step.effect == Effect.NONE:
        generation = step.generation + 1
        # An unknown effect stays unknown: the call under the old key may have had an effect that needs an undo.
        fields |= {"generation": generation, "idempotency_key": _key(locked, step, generation)}
    locked.move(step, ProcessState.PENDING, actor, why, **fields)
    _acknowledge_step(step, actor)
    undoing = locked.run.direction == Direction.UNDO
    locked.move_run(RunState.COMPENSATING if undoing else RunState.PROCESSING, actor, why, **locked.more_time())


def _acknowledge_step(step: StepState, actor: str) -> None:
    """The step leaves Error. Acknowledge its alerts as this actor, and close them."""
    standing = Alert.objects.filter(run_id=step.run_id, position=step.position, direction=step.direction, closed_at__isnull=True)
    standing.filter(acknowledged_at__isnull=True).update(acknowledged_at=Now(), acknowledged_by=actor)
    standing.update(closed_at=Now())


def _amended(locked: LockedRun, step: StepState, amend: Mapping[str, Any]) -> str:
    """Apply corrections to the payload; returns the old and new values as text."""
    run = locked.run
    changed = {name: value for name, value in amend.items() if run.payload.get(name) != value}
    if not changed:
        return ""
    try:
        workflow = version_of(run.workflow, run.version)
    except DefinitionError as error:
        raise Refused(str(error)) from error
    allowed = workflow.step(step.position).amendable if step.direction == Direction.DO else ()
    for name in changed:
        if name not in allowed:
            raise Refused(
                _("%(field)s cannot be changed when resubmitting %(step)s; allowed fields: %(allowed)s.")
                % {"field": name, "step": step.name, "allowed": ", ".join(allowed) or "-"},
                "not_amendable",
            )
    try:
        workflow.intake.check_amendment(changed)
    except UnreadableSubmission as error:
        raise Refused(str(error), "invalid_amendment") from error
    words = "; ".join(f"{name}: {run.payload.get(name)!r} -> {value!r}" for name, value in changed.items())
    locked.amend(changed)
    return words


def _open_letter(pk: int) -> DeadLetter:
    letter = DeadLetter.objects.select_for_update().filter(pk=pk).first()
    if letter is None:
        raise Refused(_("There is no dead letter %(number)s.") % {"number": pk}, "unknown_dead_letter")
    if letter.resolved_at is not None:
        raise ChangedMeanwhile(_("The dead letter was resolved meanwhile: %(how)s") % {"how": letter.resolution})
    return letter


def _resolve(letter: DeadLetter, by: Actor, how: str) -> None:
    DeadLetter.objects.filter(pk=letter.pk).update(resolved_at=Now(), resolution=f"{name_of(by)}: {how}")
    log(by, letter, how)


def _demand(reason: str) -> None:
    if not reason.strip():
        raise Refused(_("A reason is required."), "reason_required")
