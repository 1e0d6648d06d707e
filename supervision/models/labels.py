"""The displayed names of the states. A test checks that every member has one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.utils.translation import gettext_lazy as _

from supervision.states import Direction, Effect, ProcessState, RunState

if TYPE_CHECKING:
    from django.utils.functional import _StrOrPromise as StrOrPromise

RUN_LABELS = {
    RunState.PENDING: _("Pending"),
    RunState.PROCESSING: _("Processing"),
    RunState.PROCESSED: _("Processed"),
    RunState.ERROR: _("Error"),
    RunState.COMPENSATING: _("Undoing"),
    RunState.CANCELLED: _("Cancelled"),
}
STEP_LABELS = {
    ProcessState.PENDING: _("Pending"),
    ProcessState.PROCESSING: _("Processing"),
    ProcessState.PROCESSED: _("Processed"),
    ProcessState.ERROR: _("Error"),
    ProcessState.SKIPPED: _("Skipped"),
    ProcessState.CANCELLED: _("Cancelled"),
}
DIRECTION_LABELS = {Direction.DO: _("do"), Direction.UNDO: _("undo")}
EFFECT_LABELS = {Effect.NONE: _("none"), Effect.UNKNOWN: _("unknown"), Effect.DONE: _("done")}

# The permissions of runs: `operate` is the right to all verbs, each other one to its own (`approvals.rights`).
RUN_RIGHTS: list[tuple[str, StrOrPromise]] = [
    ("operate", _("Can resubmit, skip, cancel and undo")),
    ("resubmit_run", _("Can resubmit")),
    ("skip_run", _("Can skip")),
    ("complete_run", _("Can record as done by hand")),
    ("cancel_run", _("Can cancel")),
    ("abandon_run", _("Can cancel without undo")),
    ("compensate_run", _("Can undo")),
    ("resume_run", _("Can go back to a step")),
    ("move_run", _("Can move to a newer version")),
    ("signal_run", _("Can send signals")),
    ("pause_run", _("Can pause and resume")),
    ("refund_run", _("Can give money back")),
    ("edit_run", _("Can change what was ordered")),
    ("settle_finding", _("Can settle findings of the reconciliation")),
    ("approve_verb", _("Can approve another operator's verbs")),
    ("handle_incident", _("Can own, note and acknowledge incidents and alerts")),
    ("settle_dead_letter", _("Can requeue and discard dead letters")),
]
