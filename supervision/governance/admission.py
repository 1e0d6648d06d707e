"""Admission: before a call it chooses the resource, and says whether and when that takes the call. Afterwards it returns the slot.

A step whose effect is unknown or done stays with the resource that it was sent to, because only that one knows its
idempotency key. So do its retries and its undo. Any other step follows the current routes, or goes where most room is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from supervision.governance import circuit_breaker, rate_limiter, resources
from supervision.postgres import db
from supervision.retry import Failure, Outcome
from supervision.states import ATTEMPTS_PER_EPOCH, Claim
from supervision.store import step_verbs
from supervision.wakeup import hints
from supervision.workflow import StepPosition


@dataclass(frozen=True)
class CallPermit:
    """Permission to make one call. not_before: `time.monotonic()` value of the moment reserved for its first request.

    settings: the resource's settings, which operators edit. paced: it has a rate limit, also for the call's further requests.
    until: `time.monotonic()` value at which the call has to be over, because soon after that another call may get its slot.
    """

    resource: str | None = None
    not_before: float = 0.0
    settings: Mapping[str, Any] = field(default_factory=dict)
    paced: bool = False
    until: float = float("inf")


@dataclass
class AdmissionResult:
    """The claims that may make their calls, and the others, each with the failure that postpones it."""

    admitted: list[Claim]
    refused: list[tuple[Claim, Failure]] = field(default_factory=list)


_permits: dict[rate_limiter.Holder, CallPermit] = {}  # one for each call under way in this process whose service is governed

# What had an effect and names no resource was sent to the one of the service's own name while that was alone: no call was routed.
# A new epoch makes effects unknown, too: of steps that may have been sent elsewhere in the lost time.
_ROUTING_FACTS = f"""
SELECT s.run_id,
       CASE WHEN coalesce(d.effect, s.effect) <> 'none' OR s.effect <> 'none' THEN coalesce(s.resource, d.resource,
            CASE WHEN d.effect = 'done' OR coalesce(d.attempt, s.attempt) < {ATTEMPTS_PER_EPOCH} THEN %(own)s::text END) END,
       r.partition, r.key
  FROM unnest(%(runs)s::bigint[]) v(run_id)
  JOIN supervision_stepstate s ON s.run_id = v.run_id AND s.direction = %(direction)s AND s.position = %(position)s
  JOIN supervision_run r ON r.id = s.run_id
  LEFT JOIN supervision_stepstate d
    ON %(direction)s = 'undo' AND d.run_id = s.run_id AND d.direction = 'do' AND d.position = s.position
"""  # noqa: S608 - our own number


def _holder(place: StepPosition, claim: Claim) -> rate_limiter.Holder:
    return claim.run_id, place.direction, place.position, claim.attempt


def admit(place: StepPosition, claims: Sequence[Claim]) -> AdmissionResult:
    """Decide which claims may make their calls now. The caller postpones the others, which counts no failure."""
    service = place.agent.resource
    if service is None or not claims:
        return AdmissionResult(list(claims))
    seen = resources.look()
    if not seen.governed(service):
        breaker = circuit_breaker.admit(service, [claim.run_id for claim in claims])
        admitted, turned_away = _parted(claims, breaker)
        return AdmissionResult(admitted, _refuse(turned_away, breaker))
    routed = service in seen.routed
    result = AdmissionResult([])
    for (name, version), group in _chosen(seen, service, place, claims).items():
        breaker = circuit_breaker.admit(name, [claim.run_id for claim in group])
        group, turned_away = _parted(group, breaker)
        result.refused += _refuse(turned_away, breaker)
        if not group:
            continue
        holders = [_holder(place, claim) for claim in group]
        lease = step_verbs.budget(place.step.complete_within)
        taken = rate_limiter.take(name, holders, lease_seconds=lease)
        known = seen.by_name.get(name)
        settings = known.settings if known is not None else {}
        paced = known is not None and known.rate is not None
        for claim, holder in zip(group, holders, strict=True):
            if holder in taken.delays:
                begin = taken.at + taken.delays[holder]
                _permits[holder] = CallPermit(name, begin, settings, paced, begin + lease)
                result.admitted.append(claim)
            else:
                result.refused += _refuse([claim], circuit_breaker.Admission((), taken.wait, taken.why))
                circuit_breaker.no_verdict([claim.run_id])
        if routed:
            step_verbs.route(place, [claim for claim, holder in zip(group, holders, strict=True) if holder in taken.delays], name, version)
    return result


def _parted(claims: Sequence[Claim], told: circuit_breaker.Admission) -> tuple[list[Claim], list[Claim]]:
    if len(told.runs) == len(claims):
        return list(claims), []
    return [claim for claim in claims if claim.run_id in told.runs], [claim for claim in claims if claim.run_id not in told.runs]


def _refuse(claims: Sequence[Claim], told: circuit_breaker.Admission) -> list[tuple[Claim, Failure]]:
    failure = Failure(outcome=Outcome.POSTPONED, started=False, message=told.why, not_before=told.wait)
    return [(claim, failure) for claim in claims]


Choice = tuple[str, int | None]  # resource, version of the route that chose it


def _chosen(seen: resources.Snapshot, service: str, place: StepPosition, claims: Sequence[Claim]) -> dict[Choice, list[Claim]]:
    members = seen.serving.get(service, ())
    if service not in seen.routed:
        return {(members[0].name, None): list(claims)}
    own = service if any(known.name == service for known in members) else None
    facts = {"runs": [claim.run_id for claim in claims], "direction": place.direction, "position": place.position, "own": own}
    known = {run_id: rest for run_id, *rest in db.run(_ROUTING_FACTS, facts)}
    free = _free(members)
    chosen_to_probe = circuit_breaker.probing(members)
    probes = sorted(circuit_breaker.ready_for_probe() & set(free))
    chosen: dict[Choice, list[Claim]] = {}
    for claim in claims:
        bound, partition, key = known.get(claim.run_id, (None, None, ""))
        choice: Choice
        if bound is not None:
            choice = bound, None
        elif route := seen.route(service, partition or resources.partition_of(key)):
            choice = route
        elif claim.run_id in chosen_to_probe:
            choice = chosen_to_probe[claim.run_id], None
        elif probes:
            choice = probes.pop(), None
        else:
            choice = max(free, key=lambda name: free[name]), None
        if choice[0] in free:
            free[choice[0]] -= 1
        chosen.setdefault(choice, []).append(claim)
    return chosen


def _free(members: Sequence[resources.Known]) -> dict[str, float]:
    """The free slots of each of these resources. One that takes no calls now gets a large negative number."""
    used = rate_limiter.in_flight([known.name for known in members])
    return {
        known.name: (1e6 if known.capacity is None else known.capacity) - used.get(known.name, 0)
        if known.closed and not known.paused
        else -1e9
        for known in members
    }


def permits(place: StepPosition) -> Callable[[Claim], CallPermit]:
    """A function from an admitted claim to its permit. Claims of an ungoverned service all get one without limits."""
    service = place.agent.resource
    known = resources.look().by_name.get(service) if service is not None else None
    free = CallPermit(service, 0.0, known.settings if known is not None else {})
    if not _permits:
        return lambda _: free
    return lambda claim: _permits.get(_holder(place, claim), free)


def resource_of(place: StepPosition, claim: Claim) -> str | None:
    """The resource that this claim's call was sent to."""
    permit = _permits.get(_holder(place, claim))
    return permit.resource if permit is not None else place.agent.resource


def keep(calls: Mapping[rate_limiter.Holder, float]) -> set[rate_limiter.Holder]:
    """Let these calls, which are under way, take so many seconds more from now. Returns those that have lost their slot."""
    governed = {holder: seconds for holder, seconds in calls.items() if holder in _permits}
    return governed.keys() - rate_limiter.keep(governed) if governed else set()


def over(place: StepPosition, claims: Sequence[Claim]) -> None:
    """Return the slots of calls that are over or were never made, and hint the scheduler that waiting steps may be claimed."""
    circuit_breaker.no_verdict([claim.run_id for claim in claims])
    if not _permits:
        return
    held = [holder for claim in claims if (holder := _holder(place, claim)) in _permits]
    if not held:
        return
    rate_limiter.give_back(held)
    for holder in held:
        _permits.pop(holder, None)
    hints.send(hints.SCHEDULE)


def claimable(service: str, most: int) -> tuple[int, bool]:
    """How many more steps of this service may be claimed now, and whether only passing time can make room (its rate limit)."""
    names = resources.agents_of([service])
    return rate_limiter.claimable(service, names, most) if names else (0, False)
