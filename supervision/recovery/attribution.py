"""Attribution: a failed call is the service's fault (an outage), the order's own fault, or cannot be attributed yet.

The circuit breaker decides by the calls of other orders. Its decision is stored on the step, together with the failure.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from supervision.breaker import FailedCall
from supervision.governance import admission, circuit_breaker, resources
from supervision.governance.outages import REFUSES_US, UNREACHABLE
from supervision.postgres import db
from supervision.retry import Failure, Outcome
from supervision.states import Claim
from supervision.store import failure_sql
from supervision.store.step_verbs import addressed
from supervision.workflow import StepPosition


def tell(place: StepPosition, failed: Sequence[tuple[Claim, Failure]]) -> Sequence[tuple[Claim, Failure]]:
    """Ask the breaker whose fault these failures are. Each is returned with its `blame`, and its `outage` if there is one.

    Failures that involve no service are returned unchanged.
    """
    blamed: dict[str, dict[Claim, Failure]] = {}
    for claim, failure in failed:
        if failure.of_resource and (resource := admission.resource_of(place, claim)) is not None:
            blamed.setdefault(resource, {})[claim] = failure
    if not blamed:
        return failed
    told: dict[Claim, Failure] = {}
    for resource, failures in blamed.items():
        told |= _told_of(place, resource, failures)
    return [(claim, told.get(claim, failure)) for claim, failure in failed]


def _told_of(place: StepPosition, resource: str, failures: Mapping[Claim, Failure]) -> dict[Claim, Failure]:
    since = dict(db.run(failure_sql.FAILING_FOR, addressed(place, list(failures))))  # type: ignore[arg-type]
    now = time.monotonic()
    calls = [
        FailedCall(claim.run_id, now - (it.at or now), since.get(claim.run_id), it.unreachable, it.refuses_us)
        for claim, it in failures.items()
    ]
    worst = next((it for it in failures.values() if it.refuses_us), list(failures.values())[-1])

    def give_back(runs: Sequence[int]) -> None:
        service = place.agent.resource
        db.fetch(failure_sql.GIVE_BACK, {"runs": list(runs), "agents": resources.agents_of([str(service)])})

    code = REFUSES_US if worst.refuses_us else UNREACHABLE if worst.unreachable else worst.code
    told = circuit_breaker.failed(resource, calls, worst.message, code, give_back=give_back)
    outage = circuit_breaker.wait_of(told)
    return {claim: replace(it, outage=outage, blame=told.blames[claim.run_id]) for claim, it in failures.items()}


def answered(place: StepPosition, ended: Sequence[tuple[Claim, Failure | None, float]]) -> None:
    """Note calls that ended at these `time.monotonic()` values. Any answer, even a refusal, shows that the service works."""
    permit_of = admission.permits(place)
    moments: dict[str, list[float]] = {}
    for claim, failure, at in ended:
        refused = failure is not None and failure.outcome is Outcome.PERMANENT and not failure.reconcile
        if not (refused or failure is None or failure.awaits is not None):
            continue
        if (resource := permit_of(claim).resource) is not None:
            moments.setdefault(resource, []).append(at)
    for resource, times in moments.items():
        circuit_breaker.succeeded(resource, times)


def blamed(failure: Failure, counted: int) -> int | None:
    """How `blamed_count` changes: 0 = it is cleared, 1 = it grows by one, 2 = it is set to one; None = it stays."""
    if failure.blame is None:
        return None
    if counted:
        return 2 if failure.blame.anew else 1
    return 0 if failure.blame.anew else None
