"""A run that ends Cancelled without being undone: its undo steps are Skipped, except those that give back what our database holds.

The undo step of what stays says so in its result (`LEFT`): the effect stays by decision of an operator, not by mistake.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from django.db.models.functions import Coalesce, Now
from django.utils.translation import gettext as _

from supervision.agent import get_agent
from supervision.errors import DefinitionError
from supervision.models import StepState
from supervision.runtime.humanize import utc
from supervision.states import FINAL_RUN_STATES, Direction, Effect, ProcessState, RunState
from supervision.store.runs import beginning_again
from supervision.store.runs.locked_run import LockedRun, is_running

LEFT = {"left": True}


def hindrances(locked: LockedRun) -> list[str]:
    """Why this run cannot be cancelled without undo now, one sentence each."""
    if locked.run.process_state in FINAL_RUN_STATES:
        return [_("The order is %(state)s and can no longer be cancelled.") % {"state": locked.run.process_state}]
    words = _("%(step)s is being undone at this moment, until %(until)s at most: try again when it has come to rest.")
    return [
        words % {"step": step.name, "until": utc(step.complete_by)}
        for step in locked.undos
        if step.process_state == ProcessState.PROCESSING
    ]


def leave(locked: LockedRun, actor: str, why: str) -> None:
    """Give up the run's open steps and end it; undo nothing but what is to be given back in our own database.

    The caller has found no `hindrances`.
    """
    run, wanted = locked.run, {"cancel_requested_at": Coalesce("cancel_requested_at", Now())}
    here = begun(locked)
    if run.direction == Direction.DO:
        locked.undo(actor, why, leave=lambda undo: _skip(locked, undo, here, actor, why), **wanted)
        return
    if run.resume_from is not None:
        beginning_again.undo_the_rest(locked, actor, why, **wanted)
    if run.process_state == RunState.CANCELLED:
        return
    for undo in locked.undos:
        _skip(locked, undo, here, actor, why)
    if run.process_state == RunState.ERROR:
        locked.move_run(RunState.COMPENSATING, actor, why)
    locked.next_undo(actor, why)


def begun(locked: LockedRun) -> set[str]:
    """The names of the steps whose effect is there, or may be: those that have begun and are not undone."""
    undone = {undo.position for undo in locked.undos if undo.process_state == ProcessState.PROCESSED}
    return {step.name for step in locked.steps if step.position not in undone and (step.effect != Effect.NONE or is_running(step))}


def stays(undo: StepState, here: Collection[str]) -> bool:
    """Whether what this undo step would undo stays. here: what `begun` says."""
    if undo.process_state == ProcessState.ERROR:
        return True
    try:
        return get_agent(undo.agent).stays(undo.name, here)
    except DefinitionError:
        return True


def _skip(locked: LockedRun, undo: StepState, here: Collection[str], actor: str, why: str) -> None:
    if undo.process_state in (ProcessState.PENDING, ProcessState.ERROR) and stays(undo, here):
        fields: dict[str, Any] = {"finished_at": Now(), "result": LEFT}
        locked.move(undo, ProcessState.SKIPPED, actor, why, **fields)
