"""The plan of a run that branches, as its rows tell it: which steps are ready, what each still waits for, in which order they are undone.

These functions only read rows that the caller has locked.
"""

from __future__ import annotations

from collections.abc import Sequence

from supervision.models import StepState
from supervision.states import ProcessState

_DONE = (ProcessState.PROCESSED, ProcessState.SKIPPED)


def unfinished(steps: Sequence[StepState]) -> dict[int, int]:
    """How many of the steps that come before each of these are not done, by position."""
    done = {each.position for each in steps if each.process_state in _DONE}
    return {step.position: sum(earlier not in done for earlier in step.after or ()) for step in steps}


def ready(steps: Sequence[StepState]) -> list[StepState]:
    """The Pending steps that nothing comes before any more, and that are not due yet."""
    waiting = [step for step in steps if step.process_state == ProcessState.PENDING and step.not_before is None]
    left = unfinished(steps) if waiting else {}
    return [step for step in waiting if not left[step.position]]


def order_undo(steps: Sequence[StepState], undos: Sequence[StepState]) -> None:
    """Let each undo step come after those of the next steps that are undone, on each way from it to the end."""
    undone = {undo.position for undo in undos}
    following: dict[int, set[int]] = {step.position: set() for step in steps}
    for step in sorted(steps, key=lambda step: -step.position):
        found = {step.position} if step.position in undone else following[step.position]
        for earlier in step.after or ():
            following[earlier] |= found
    for undo in undos:
        undo.after = sorted(following[undo.position])
