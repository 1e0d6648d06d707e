"""Tells of attempts in spans. Called only while spans are on (`spans.on`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from supervision.execution.agents_process import Answer
from supervision.retry import Failure
from supervision.states import Claim
from supervision.store.records import Started
from supervision.telemetry import spans
from supervision.workflow import StepPosition

DONE, STALE = "done", "stale"


def attempt(place: StepPosition, item: Started, waited: float, call: Callable[[], Answer]) -> Answer:
    """Make an agent's call in the span of its attempt. waited: how long the started step waited for a thread."""
    with spans.active.attempt(item.key, _facts(place, item, waited)) as span:
        answer = call()
        _ended(span, answer.failure)
        return answer


def attempts(
    place: StepPosition, items: Sequence[Started], failed: Sequence[tuple[Claim, Failure]], stale: Sequence[Claim], seconds: float
) -> None:
    """Tell of the attempts of a transactional agent, which worked so long for all of them together and has just committed."""
    began, failures = time.time_ns() - int(seconds * 1e9), dict(failed)
    for item in items:
        with spans.active.attempt(item.key, _facts(place, item, 0.0), began) as span:
            if item.claim in stale:
                spans.active.ended(span, STALE)
            else:
                _ended(span, failures.get(item.claim))


def _facts(place: StepPosition, item: Started, waited: float) -> dict[str, Any]:
    return {
        "sas.run.id": item.run_id,
        "sas.workflow": place.workflow,
        "sas.step": place.step.name,
        "sas.direction": str(place.direction),
        "sas.attempt": item.claim.attempt,
        "sas.wait_seconds": round(waited, 6),
    }


def _ended(span: Any, failure: Failure | None) -> None:
    if failure is None:
        spans.active.ended(span, DONE)
    else:
        spans.active.ended(span, str(failure.outcome), failure.code)
