"""Counts how attempts of steps end, for `/metrics`: a few additions in memory for a cohort."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from supervision.retry import Failure
from supervision.states import Claim
from supervision.telemetry import measures
from supervision.workflow import StepPosition

DONE = "done"


def done(place: StepPosition, number: int) -> None:
    """Count attempts whose success is committed."""
    if number:
        measures.ATTEMPTS.add(place.workflow, place.step.name, place.direction, DONE, number=number)


def failed(place: StepPosition, failures: Sequence[tuple[Claim, Failure]]) -> None:
    """Count attempts whose failure is committed."""
    for (outcome, code), number in Counter((str(failure.outcome), failure.code) for _, failure in failures).items():
        measures.ATTEMPTS.add(place.workflow, place.step.name, place.direction, outcome, number=number)
        measures.FAILURES.add(place.agent.name, code or outcome, number=number)


def waited(place: StepPosition, seconds: float) -> None:
    """Count how long a started step waited for a thread."""
    measures.THREAD_WAIT.observe(seconds, place.agent.name)


def worked(place: StepPosition, seconds: float, number: int = 1) -> None:
    """Count how long an agent worked on so many steps."""
    measures.ATTEMPT_SECONDS.observe(seconds, place.workflow, place.step.name, place.direction, number=number)
