"""The verbs of operators and customers. Each takes the actor, a reason and the state that the actor saw.

Each verb locks the whole run and reads it again. It then acts completely or raises Refused with a message. The audit entry
commits with the action.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from django.db.models.functions import Now
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop as _n

from supervision.approvals import gate, rights
from supervision.approvals.stakes import Operation
from supervision.errors import ChangedMeanwhile, DefinitionError, Refused, UnreadableSubmission
from supervision.incidents import incident_sql, lifecycle
from supervision.models import Alert, DeadLetter, Incident, IncidentNote, Run, StepState, Submission
from supervision.operations import requeue
from supervision.operations.acting import carry_out, close_alerts_of, commit, demand_reason, locked_run, same_note
from supervision.operations.audit_log import Actor, log, name_of
from supervision.operations.previews import key_of, same_plan, still_here
from supervision.postgres import db
from supervision.signals.sending import Sent, send_signal, was_sent
from supervision.states import FINAL_RUN_STATES, Direction, Effect, ProcessState, RunState
from supervision.store.runs import unstarted_children
from supervision.store.runs.beginning_again import undo_the_rest
from supervision.store.runs.locked_run import LockedRun, due_now
from supervision.wakeup import hints
from supervision.workflow import version_of

LONGEST_NOTE = 2000
# ------------------------------------------------------------------------------------------------------- verbs


@gate.executor("cancel")
def cancel(key: str, *, by: Actor, reason: str, plan_version: str | None = None) -> str:
    """Cancel an order; returns its state. It ends Cancelled (or Error while an undo is stuck), never Processed.

    Works before the submission is consumed, too. Does nothing more while the order is already being undone. Raises
    Refused once the order is Processed or Cancelled.
    """
    demand_reason(reason)
    return commit(lambda: _cancel(key, by, reason, plan_version))


def _cancel(key: str, by: Actor, reason: str, plan_version: str | None) -> str:
    submission = None
    if not Run.objects.filter(key=key).exists():  # a bulk job holds its runs' rows, and must wait for no other row here
        submission = Submission.objects.select_for_update().filter(public_id=key).first()
    # A dead letter's order can be cancelled too: if an operator requeues it later, it ends Cancelled.
    if submission is not None and not Run.objects.filter(key=key).exists():
        still_here(key)
        rights.demand(by, "cancel")
        if submission.cancel_requested_at is None:
            Submission.objects.filter(pk=submission.pk).update(cancel_requested_at=Now(), cancelled_by=name_of(by), cancel_reason=reason)
            log(by, submission, f"cancel: {reason}")
        return RunState.PENDING
    locked = locked_run(key)
    same_plan(locked, plan_version)
    state = locked.run.process_state
    if state in FINAL_RUN_STATES:
        raise Refused(_("The order is %(state)s and can no longer be cancelled.") % {"state": state}, "not_cancellable")
    if locked.run.resume_from is not None:
        return carry_out(locked, by, "cancel", reason, lambda: undo_the_rest(locked, name_of(by), reason, cancel_requested_at=Now()))
    if locked.run.direction == Direction.UNDO:
        return state
    return carry_out(locked, by, "cancel", reason, lambda: _undo(locked, name_of(by), reason, cancel_requested_at=Now()))


def _undo(locked: LockedRun, actor: str, reason: str, **fields: Any) -> None:
    for step in locked.failed:
        close_alerts_of(step, actor)
    locked.undo(actor, reason, **fields)


@gate.executor("compensate")
def compensate(key: str, *, by: Actor, reason: str, plan_version: str | None = None) -> str:
    """Undo everything that was done or may have been done, in reverse order; returns the run's state."""
    demand_reason(reason)

    def work() -> str:
        locked = locked_run(key)
        same_plan(locked, plan_version)
        if locked.run.resume_from is not None:
            return carry_out(locked, by, "compensate", reason, lambda: undo_the_rest(locked, name_of(by), reason), said=f"undo: {reason}")
        if locked.run.process_state in FINAL_RUN_STATES or locked.run.direction == Direction.UNDO:
            raise Refused(
                _("The order is %(state)s and cannot be undone.") % {"state": locked.run.process_state},
                "not_undoable",
            )
        return carry_out(locked, by, "compensate", reason, lambda: _undo(locked, name_of(by), reason), said=f"undo: {reason}")

    return commit(work)


@gate.executor("resubmit")
def resubmit(
    key: str,
    *,
    by: Actor,
    reason: str,
    attempt: int | None = None,
    new_generation: bool = False,
    amend: Mapping[str, Any] | None = None,
    plan_version: str | None = None,
    step: str | None = None,
    seen_step: str | None = None,
) -> str:
    """Run the failed step again, and only it; returns the run's state.

    step: the failed step's name. Without it, every failed step of a run whose plan branches. The run goes on when none of its
        steps is in Error any more.
    attempt: the attempt that the caller saw. Of several callers that saw the same attempt, the first one wins.
    seen_step: the failed step that the caller saw, or the first of them. ChangedMeanwhile if it is another one now.
    new_generation: give the step a new idempotency key although its effect is unknown. A step whose effect is `none` gets
        a new key in any case.
    amend: corrections to the payload, of the fields that the step's definition allows.
    """
    demand_reason(reason)

    def work() -> str:
        locked = locked_run(key)
        failed = _failed(locked, attempt, step, seen_step)
        same_plan(locked, plan_version)
        changed = _amended(locked, failed, amend or {})
        why = f"{reason} ({changed})" if changed else reason
        return carry_out(
            locked, by, "resubmit", reason, lambda: _revive(locked, failed, name_of(by), why, new_generation),
            said=f"resubmit: {why}", about=failed, step=step, new_generation=new_generation, amend=dict(amend or {}),
        )  # fmt: skip

    return commit(work)


@gate.executor("skip")
def skip(
    key: str,
    *,
    by: Actor,
    reason: str,
    attempt: int | None = None,
    plan_version: str | None = None,
    step: str | None = None,
    seen_step: str | None = None,
) -> str:
    """Go on without the failed step; returns the run's state.

    step: its name. Where several steps have failed, it has to be given, and the run goes on when none is in Error any more.
    attempt, seen_step: what the caller saw, as for `resubmit`.
    """
    demand_reason(reason)

    def work() -> str:
        locked = locked_run(key)
        failed = _failed(locked, attempt, step, seen_step)
        if len(failed) > 1:
            names = ", ".join(each.name for each in failed)
            raise Refused(_("Several steps are in Error: %(names)s. Name the one to skip.") % {"names": names}, "step_required")
        same_plan(locked, plan_version)
        if locked.run.resume_from is not None:
            raise Refused(
                _("The order goes on from an earlier step, so %(step)s has to be undone: resubmit it, record that it was undone by hand,"
                  " or cancel the order.") % {"step": failed[0].name},
                "not_skippable",
            )  # fmt: skip

        def act() -> None:
            actor = name_of(by)
            unstarted_children.drop(failed[0], key)
            locked.move(failed[0], ProcessState.SKIPPED, actor, reason, finished_at=Now())
            close_alerts_of(failed[0], actor)
            if locked.run.direction == Direction.UNDO and not locked.failed:
                locked.move_run(RunState.COMPENSATING, actor, reason)
            locked.go_on(actor, reason)

        return carry_out(locked, by, "skip", reason, act, about=failed, step=failed[0].name)

    return commit(work)


class Signalled(NamedTuple):
    """What became of an operator's signal, and the state of the order's run."""

    state: str
    outcome: Sent


def signal(
    key: str, name: str, *, by: Actor, reason: str, payload: Mapping[str, Any] | None = None,
    signal_key: str | None = None, by_client: bool = False,
) -> Signalled:  # fmt: skip
    """Send the order a signal, in the place of the sender that should have sent it.

    signal_key: the same key has one effect. by_client: the client that submitted the order sends it. Raises what `send_signal` raises.
    """
    demand_reason(reason)

    def work() -> Signalled:
        run = Run.objects.filter(key=key).first()
        arguments = {"name": name, "payload": payload or {}, "signal_key": signal_key}
        if was_sent(key, name, signal_key):  # then nothing moves, and no operator has to approve it once more
            rights.demand(by, "signal")
        else:
            gate.through(Operation(verb="signal", subject=key, order=key, arguments=arguments, run=run), by=by, reason=reason)
        outcome = send_signal(key, name, payload, key=signal_key, sent_by=name_of(by), reason=reason, by_client=by_client)
        log(by, run or Submission.objects.get(public_id=key), f"signal {name}: {reason}")
        return Signalled(run.process_state if run else RunState.PENDING.value, outcome)

    return gate.asking(lambda: db.transact(work))


@gate.executor("signal")
def _signal_approved(key: str, /, *, by: Actor, reason: str, plan_version: str | None, **arguments: Any) -> str:
    # What a signal says stays true when the order goes on; a run that has ended refuses it.
    return str(signal(key, arguments["name"], by=by, reason=reason, **{k: arguments[k] for k in ("payload", "signal_key")}).outcome)


def acknowledge(alert_ids: Sequence[int], *, by: Actor) -> int:
    """Record that the actor has seen these alerts; returns how many were not yet acknowledged."""
    rights.demand(by, rights.INCIDENTS)

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
    rights.demand(by, rights.INCIDENTS)
    demand_reason(reason)

    def work() -> None:
        db.fetch(incident_sql.LOCK)
        incident = Incident.objects.filter(pk=pk).first()
        if incident is None:
            raise Refused(_("There is no incident %(number)s.") % {"number": pk}, "unknown_incident")
        facts = {"id": pk, "by": name_of(by), "reason": reason}
        if db.fetch(incident_sql.ACKNOWLEDGE, facts):
            db.fetch(incident_sql.ACKNOWLEDGE_ALERTS, facts)
            lifecycle.tell_channels([(pk, "acknowledged")])
            log(by, incident, f"acknowledged: {reason}")

    db.transact(work)


def assign_incident(pk: int, owner: str, *, by: Actor) -> None:
    """Give an open incident to this operator; an empty name removes its owner. Raises Refused where it is closed or unknown."""
    rights.demand(by, rights.INCIDENTS)

    def work() -> None:
        incident = _open_incident(pk)
        if incident.owner == owner:
            return
        Incident.objects.filter(pk=pk).update(owner=owner)
        text = _n("Assigned to %(owner)s.") % {"owner": owner} if owner else _n("Without an owner from now on.")
        IncidentNote.objects.create(incident=incident, author=name_of(by), text=text)
        log(by, incident, text)

    db.transact(work)


def note_incident(pk: int, text: str, *, by: Actor) -> IncidentNote:
    """Add a note to an open incident, and return it; see `same_note`. Raises Refused: closed or unknown; or it is empty or too long."""
    rights.demand(by, rights.INCIDENTS)
    text = text.strip()
    if not text or len(text) > LONGEST_NOTE or "\0" in text:
        raise Refused(_("A note has between 1 and %(most)d characters.") % {"most": LONGEST_NOTE}, "bad_note")

    def work() -> IncidentNote:
        incident = _open_incident(pk)
        if (same := same_note(IncidentNote.objects.filter(incident=incident), name_of(by), text)) is not None:
            return same
        log(by, incident, f"noted: {text}")
        return IncidentNote.objects.create(incident=incident, author=name_of(by), text=text)

    return db.transact(work)


def _open_incident(pk: int) -> Incident:
    """The incident under a lock."""
    incident = Incident.objects.select_for_update().filter(pk=pk, closed_at__isnull=True).first()
    if incident is None:
        raise Refused(_("There is no open incident %(number)s.") % {"number": pk}, "unknown_incident")
    return incident


def requeue_dead_letter(pk: int, *, by: Actor, reason: str) -> str:
    """Put a dead letter back where it came from, byte for byte. Returns the submission's public id, or else the letter's number."""
    rights.demand(by, rights.LETTERS)
    demand_reason(reason)

    def work() -> str:
        letter = requeue.open_letter(pk)
        went = requeue.give_back(letter)
        _resolve(letter, by, f"requeued: {reason}")
        return went

    went = db.transact(work)
    hints.send(hints.CONSUME)
    hints.send(hints.DELIVER)
    return went


def discard_dead_letter(pk: int, *, by: Actor, reason: str) -> None:
    """Close a dead letter for good; its bytes are kept. A child run that it was to become counts as cancelled."""
    rights.demand(by, rights.LETTERS)
    demand_reason(reason)
    db.transact(lambda: requeue.discarded(_resolve(requeue.open_letter(pk), by, f"discarded: {reason}")))


# ------------------------------------------------------------------------------------------------------ pieces


def _failed(locked: LockedRun, attempt: int | None, name: str | None, seen: str | None) -> list[StepState]:
    """The failed steps that a verb is about. attempt, seen: the attempt and the name that the caller saw of the first of them."""
    failed = locked.failed
    if locked.run.process_state != RunState.ERROR or not failed:
        if attempt is not None:
            raise ChangedMeanwhile(_("The order is %(state)s now: another request was faster.") % {"state": locked.run.process_state})
        raise Refused(_("The order is %(state)s: no step is in Error.") % {"state": locked.run.process_state}, "not_in_error")
    if name is not None and name not in {step.name for step in failed}:
        names = ", ".join(step.name for step in failed)
        raise Refused(_("Step %(name)s is not in Error; in Error: %(names)s.") % {"name": name, "names": names}, "not_in_error")
    failed = [step for step in failed if name in (None, step.name)]
    if seen is not None and failed[0].name != seen:
        raise ChangedMeanwhile(_("The order changed meanwhile."))
    if attempt is not None and failed[0].attempt != attempt:
        raise ChangedMeanwhile(
            _("You saw attempt %(seen)s of %(step)s, it is at attempt %(now)s now.")
            % {"seen": attempt, "step": failed[0].name, "now": failed[0].attempt}
        )
    return failed


def _revive(locked: LockedRun, failed: Sequence[StepState], actor: str, why: str, new_generation: bool) -> None:
    for step in failed:
        fields: dict[str, Any] = {"failure_count": 0, "dispatch_count": 0, "failing_since": None, "blamed_count": None}
        locked.hear_again(step)
        fields |= {"awaits": None, "awaits_until": None, "awaits_attempt": None}
        if new_generation or step.effect == Effect.NONE:
            generation = step.generation + 1
            # An unknown effect stays unknown: the call under the old key may have had an effect that needs an undo.
            fields |= {"generation": generation, "idempotency_key": key_of(locked, step, generation)}
        locked.move(step, ProcessState.PENDING, actor, why, **fields, **due_now())
        close_alerts_of(step, actor)
    if locked.failed:
        locked.hold_back()
        return
    undoing = locked.run.direction == Direction.UNDO
    locked.move_run(RunState.COMPENSATING if undoing else RunState.PROCESSING, actor, why, **locked.more_time())
    if locked.branches:
        locked.go_on(actor, why)


def _amended(locked: LockedRun, failed: Sequence[StepState], amend: Mapping[str, Any]) -> str:
    """Apply corrections to the payload; returns the old and new values as text."""
    run = locked.run
    changed = {name: value for name, value in amend.items() if run.payload.get(name) != value}
    if not changed:
        return ""
    try:
        workflow = version_of(run.workflow, run.version)
    except DefinitionError as error:
        raise Refused(str(error)) from error
    allowed = [name for step in failed if step.direction == Direction.DO for name in workflow.step(step.position).amendable]
    for name in changed:
        if name not in allowed:
            raise Refused(
                _("%(field)s cannot be changed when resubmitting %(step)s; allowed fields: %(allowed)s.")
                % {"field": name, "step": ", ".join(step.name for step in failed), "allowed": ", ".join(allowed) or "-"},
                "not_amendable",
            )
    try:
        workflow.intake.check_amendment(changed)
    except UnreadableSubmission as error:
        raise Refused(str(error), "invalid_amendment") from error
    words = "; ".join(f"{name}: {run.payload.get(name)!r} -> {value!r}" for name, value in changed.items())
    locked.amend(changed)
    return words


def _resolve(letter: DeadLetter, by: Actor, how: str) -> DeadLetter:
    DeadLetter.objects.filter(pk=letter.pk).update(resolved_at=Now(), resolution=f"{name_of(by)}: {how}")
    log(by, letter, how)
    return letter
