"""The child runs of a step that were never started."""

from __future__ import annotations

from django.db.models.functions import Now

from supervision.agent import CHILD
from supervision.models import Child, ChildState, StepState


def drop(step: StepState, key: str) -> None:
    """The step of the run `key` is settled without its children: those that were never started never will be."""
    if step.agent == CHILD:
        waiting = Child.objects.filter(parent_key=key, step=step.name, state=ChildState.WAITING.value)
        waiting.update(state=ChildState.CANCELLED.value, ended_at=Now())
