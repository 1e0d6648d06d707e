"""What every verb on a run has in common: the lock, the gate, the audit entry, the commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, TypeVar

from django.db.models import QuerySet
from django.db.models.functions import Now
from django.utils.translation import gettext as _

from supervision.approvals import gate
from supervision.approvals.stakes import Operation
from supervision.errors import DefinitionError, Refused
from supervision.models import IncidentNote, Run, RunNote, StepState
from supervision.operations.audit_log import Actor, log
from supervision.operations.previews import seen, without_run
from supervision.postgres import db
from supervision.runtime import failpoints
from supervision.states import Direction, ProcessState
from supervision.store import run_verbs
from supervision.store.runs.locked_run import LockedRun
from supervision.wakeup import hints
from supervision.workflow import version_of

_CLOSE = """
UPDATE supervision_alert
   SET closed_at = now(), acknowledged_at = coalesce(acknowledged_at, now()),
       acknowledged_by = CASE WHEN acknowledged_at IS NULL THEN %(actor)s ELSE acknowledged_by END
 WHERE run_id = %(run)s AND position = %(position)s AND direction = %(direction)s AND closed_at IS NULL
"""
SAME_NOTE_SECONDS = 60
Note = TypeVar("Note", IncidentNote, RunNote)
_held: ContextVar[dict[str, LockedRun] | None] = ContextVar("held", default=None)


@contextmanager
def holding(runs: Sequence[LockedRun]) -> Iterator[None]:
    """Within it, the first verb on each of these runs, which the transaction has locked, does not read it again."""
    token = _held.set({locked.run.key: locked for locked in runs})
    try:
        yield
    finally:
        _held.reset(token)


def locked_run(key: str) -> LockedRun:
    """The run of this public id, locked until the transaction ends. Raises UnknownRun, or Refused where it has no run (any more)."""
    held = (_held.get() or {}).pop(key, None)  # a verb that is refused may have changed the object
    if held is not None and run_verbs.is_as_read(held):
        return held
    run_id = Run.objects.filter(key=key).values_list("pk", flat=True).first()
    if run_id is None:
        raise without_run(key)
    return run_verbs.lock([run_id]).runs[0]


def carry_out(
    locked: LockedRun, by: Actor, verb: str, reason: str, act: Callable[[], None],
    *, about: Sequence[StepState] = (), said: str = "", **arguments: Any,
) -> str:  # fmt: skip
    """Do this to the locked run once it has passed the gate, with its hooks and its audit entry. Returns the run's state.

    about: the steps that it acts on. arguments: what the verb's executor is called with again after an approval. said: the audit
    entry, if it is not the verb with its reason.
    """
    run = locked.run
    gate.through(
        Operation(
            verb=verb, subject=run.key, order=run.key, arguments=arguments, run=run, about=about,
            steps=[*locked.steps, *locked.undos], plan_version=seen(locked),
        ),
        by=by, reason=reason,
    )  # fmt: skip
    if verb in ("resubmit", "resume"):
        _check_again(run, about)
    before = locked.run.process_state
    act()
    run_verbs.finish([locked], [before])
    log(by, locked.run, said or f"{verb}: {reason}")
    failpoints.hit("verb.before_commit")
    return locked.run.process_state


def _check_again(run: Run, about: Sequence[StepState]) -> None:
    """Raise Refused where the application does not let the failed ones of these steps be done again."""
    failed = [step.name for step in about if (step.direction, step.process_state) == (Direction.DO, ProcessState.ERROR)]
    try:
        intake = version_of(run.workflow, run.version).intake
    except DefinitionError:
        return  # other code knows this version
    if failed:
        intake.check_resubmission(run.key, run.payload, failed)


def commit(work: Callable[[], str]) -> str:
    """Do this in one transaction, and call the schedulers. Returns what it returns: the run's state.

    Raises AwaitsApproval where another operator has to approve it: then nothing was done.
    """
    state = gate.asking(lambda: db.transact(work))
    failpoints.hit("verb.after_commit")
    hints.send(hints.SCHEDULE)
    return state


def close_alerts_of(step: StepState, actor: str) -> None:
    """The step leaves Error. Acknowledge its alerts as this actor, and close them."""
    db.run(_CLOSE, {"run": step.run_id, "position": step.position, "direction": step.direction, "actor": actor})


def demand_reason(reason: str) -> None:
    """Raise Refused where there is none."""
    if not reason.strip():
        raise Refused(_("A reason is required."), "reason_required")


def same_note(notes: QuerySet[Note], author: str, text: str) -> Note | None:
    """The note among these that the author has written just now, in the same words; None if there is none. It is a form sent twice."""
    since = Now() - timedelta(seconds=SAME_NOTE_SECONDS)
    return notes.filter(author=author, text=text, at__gt=since).order_by("-pk").first()
