"""The displayed names of the states. A test checks that every member has one."""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _

from supervision.states import Direction, Effect, ProcessState, RunState

RUN_LABELS = {
    RunState.PENDING: _("Pending"),
    RunState.PROCESSING: _("Processing"),
    RunState.PROCESSED: _("Processed"),
    RunState.ERROR: _("Error"),
    RunState.COMPENSATING: _("Compensating"),
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
