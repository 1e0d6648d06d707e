"""Observes attempts of steps: counts them for `/metrics`, writes spans, and gives log lines the step that a thread works on."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from supervision.execution.agents_process import Answer
from supervision.retry import Failure
from supervision.states import Claim
from supervision.store.records import Started
from supervision.telemetry import log_context, measures, spans
from supervision.telemetry.log_context import Work
from supervision.workflow import StepPosition

DONE, STALE = "done", "stale"
Failed = Sequence[tuple[Claim, Failure]]


def calls(place: StepPosition, handed_over: float) -> Callable[[Started, Callable[[], Answer]], Answer]:
    """A function that makes an agent's call in its log context and span. handed_over: when its cohort began to wait for threads."""
    step = place.step.name

    def call(item: Started, make: Callable[[], Answer]) -> Answer:
        run_id, attempt = item.claim
        token = log_context.enter(Work(item.key, run_id, step, attempt))
        try:
            if not spans.on:
                return make()
            with spans.active.attempt(item.key, _facts(place, item, time.monotonic() - handed_over)) as span:
                answer = make()
                _tell_end(span, answer.failure)
                return answer
        finally:
            log_context.leave(token)

    return call


def answered(place: StepPosition, answers: Sequence[Answer]) -> None:
    """Count how long these calls waited for a thread, and how long they took."""
    measures.THREAD_WAIT.observe_all([answer.began - answer.handed_over for answer in answers], place.agent.name)
    took = [answer.ended - answer.began for answer in answers if answer.ended]
    measures.ATTEMPT_SECONDS.observe_all(took, place.workflow, place.step.name, place.direction)


def done(place: StepPosition, number: int) -> None:
    """Count attempts whose success is committed."""
    if number:
        measures.ATTEMPTS.add(place.workflow, place.step.name, place.direction, DONE, number=number)


def failed(place: StepPosition, failures: Failed) -> None:
    """Count attempts whose failure is committed."""
    for (outcome, code), number in Counter((str(failure.outcome), failure.code) for _, failure in failures).items():
        measures.ATTEMPTS.add(place.workflow, place.step.name, place.direction, outcome, number=number)
        measures.FAILURES.add(place.agent.name, code or outcome, number=number)


def committed(place: StepPosition, items: Sequence[Started], failures: Failed, stale: Sequence[Claim], seconds: float) -> None:
    """Count and tell of the attempts of a transactional agent, which has just committed and worked so long for all of them together."""
    measures.ATTEMPT_SECONDS.observe(seconds, place.workflow, place.step.name, place.direction, number=len(items))
    done(place, len(items) - len(failures) - len(stale))
    failed(place, failures)
    if spans.on:
        began, why = time.time_ns() - int(seconds * 1e9), dict(failures)
        for item in items:
            with spans.active.attempt(item.key, _facts(place, item, 0.0), began) as span:
                if item.claim in stale:
                    spans.active.ended(span, STALE)
                else:
                    _tell_end(span, why.get(item.claim))


def _facts(place: StepPosition, item: Started, waited: float) -> dict[str, Any]:
    return {
        "sas.run.id": item.run_id,
        "sas.workflow": place.workflow,
        "sas.step": place.step.name,
        "sas.direction": str(place.direction),
        "sas.attempt": item.claim.attempt,
        "sas.wait_seconds": round(waited, 6),
    }


def _tell_end(span: Any, failure: Failure | None) -> None:
    if failure is None:
        spans.active.ended(span, DONE)
    else:
        spans.active.ended(span, str(failure.outcome), failure.code)
