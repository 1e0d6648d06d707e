"""Resources as operators see and edit them: the calls in flight, the waiting steps and the limits of each.

A limit is in force on the next claim: every process looks at the rows at least twice a second (`resources`). Only changed
fields are written, because the breaker changes its columns while an operator has the form open.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.core.exceptions import ValidationError
from django.db.models import Q
from django.utils.translation import gettext as _

from supervision.agent import agents
from supervision.approvals import rights
from supervision.governance import circuit_breaker, rate_limiter
from supervision.models import Resource, ResourceRoute, StepState
from supervision.operations.audit_log import Actor, log, name_of
from supervision.postgres import db
from supervision.states import FINAL_RUN_STATES, FINAL_STEP_STATES, Effect, ProcessState, RunState
from supervision.wakeup import hints

EDITABLE = ("capacity", "rate_per_second", "paused", "breaker_threshold", "cool_down_seconds", "probe_limit")
_UNFINISHED = [state.value for state in RunState if state not in FINAL_RUN_STATES]

# Calls of a service with limits hold slots; without limits, the running steps are counted as its calls. Waiting steps are
# counted per service, because a step is sent to one of several resources only when its turn comes.
_FIGURES = """
WITH work AS (
    SELECT agent, count(*) FILTER (WHERE process_state = 'Processing' AND started_at IS NOT NULL) AS running,
           count(*) FILTER (WHERE process_state = 'Pending' OR started_at IS NULL) AS waiting
      FROM supervision_stepstate
     WHERE process_state = 'Processing' OR (process_state = 'Pending' AND not_before IS NOT NULL AND turn_at IS NOT NULL)
     GROUP BY agent),
calls AS (
    SELECT v.service, coalesce(sum(w.running), 0)::bigint AS running, coalesce(sum(w.waiting), 0)::bigint AS waiting
      FROM unnest(%(agents)s::text[], %(services)s::text[]) v(agent, service) LEFT JOIN work w ON w.agent = v.agent
     GROUP BY v.service),
r AS (
    SELECT *, CASE service WHEN '' THEN name ELSE service END AS serves,
           (SELECT count(*) FROM supervision_slot s WHERE s.resource = r.name AND s.until > now()) AS slots
      FROM supervision_resource r)
SELECT r.name, r.serves, r.capacity, r.rate_per_second, r.paused, r.breaker_state, r.failures, r.breaker_threshold,
       r.cool_down_seconds, r.probe_limit, r.opened_at, r.retry_at, r.last_error, r.last_error_at,
       CASE WHEN r.capacity IS NOT NULL OR r.rate_per_second IS NOT NULL OR r.paused
                 OR bool_or(r.name <> r.serves) OVER (PARTITION BY r.serves)
                 OR EXISTS (SELECT FROM supervision_resourceroute o WHERE o.service = r.serves)
            THEN r.slots ELSE coalesce(c.running, 0) END,
       coalesce(c.waiting, 0), now(), r.id
  FROM r LEFT JOIN calls c ON c.service = r.serves
 ORDER BY r.serves, r.name
"""

# What was planned by the old limits follows the new ones: the next call comes one gap after the last reserved moment, and the next probe
# one cool-down after the last failure. Otherwise a rate of one call in 1,000 seconds would hold calls up as long after it was raised.
_REPLAN = """
UPDATE supervision_resource
   SET next_call_at = CASE WHEN rate_per_second IS NULL THEN next_call_at ELSE next_call_at + interval '1 s' * (
           coalesce(1 / %(rate)s::float8 + %(jitter)s::float8 / greatest(%(rate)s::float8, 1), 0)
           - 1 / rate_per_second - %(jitter)s::float8 / greatest(rate_per_second, 1)) END,
       retry_at = retry_at + interval '1 s' * (%(cool_down)s::float8 - cool_down_seconds)
 WHERE id = %(id)s AND (rate_per_second IS DISTINCT FROM %(rate)s::float8 OR cool_down_seconds <> %(cool_down)s)
"""


@dataclass(frozen=True)
class Figures:
    """One resource at this moment. waiting: steps of its service that no agent has started."""

    name: str
    service: str
    capacity: int | None
    rate_per_second: float | None
    paused: bool
    breaker_state: str
    failures: int
    breaker_threshold: int
    cool_down_seconds: int
    probe_limit: int
    opened_at: datetime | None
    retry_at: datetime | None
    last_error: str
    last_error_at: datetime | None
    in_flight: int
    waiting: int
    now: datetime
    row_id: int

    @property
    def full(self) -> bool:
        """Whether every slot is taken."""
        return self.capacity is not None and self.in_flight >= self.capacity


def figures() -> list[Figures]:
    """Every resource with its limits and its load, in one statement."""
    pairs = [(agent.name, agent.resource) for agent in agents() if agent.resource is not None]
    return [Figures(*row) for row in db.fetch(_FIGURES, {"agents": [name for name, _ in pairs], "services": [to for _, to in pairs]})]


def services() -> list[str]:
    """The services that agents call and that a resource can serve."""
    return sorted({agent.resource for agent in agents() if agent.resource is not None})


def change(name: str, *, by: Actor, **changes: Any) -> Resource:
    """Set some of the EDITABLE limits; returns the resource.

    Raises Resource.DoesNotExist, and Django's ValidationError with the fields at fault; then nothing was changed.
    """
    rights.demand(by, rights.LIMITS)

    def work() -> Resource:
        row = Resource.objects.select_for_update().get(name=name)
        before = {field: getattr(row, field) for field in changes}
        for field, value in changes.items():
            setattr(row, field, value)
        row.clean_fields(exclude={field.name for field in Resource._meta.fields} - set(changes))
        changed = [field for field in changes if getattr(row, field) != before[field]]
        if changed:
            replan(row)
            row.save(update_fields=changed)
            log(by, row, in_words(before, {field: getattr(row, field) for field in changed}))
        return row

    unknown = sorted(set(changes) - set(EDITABLE))
    if unknown:
        raise ValidationError({field: _("This cannot be changed.") for field in unknown})
    row = db.transact(work)
    take_effect()
    return row


def replan(row: Resource) -> None:
    """Move the next call and the next probe to where the limits of `row` put them. The caller saves these in the same transaction."""
    facts = {"id": row.pk, "rate": row.rate_per_second, "cool_down": row.cool_down_seconds, "jitter": rate_limiter.JITTER_SECONDS}
    db.fetch(_REPLAN, facts)


def in_words(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """The changes with their old and new values, for the history."""
    return "; ".join(f"{field}: {_shown(before[field])} -> {_shown(value)}" for field, value in after.items())


def _shown(value: Any) -> str:
    return "none" if value is None or value == "" else str(value)


def take_effect() -> None:
    """Make this process read the resources again at once, and hint the scheduler that more steps may be claimable."""
    circuit_breaker.forget()
    hints.send(hints.SCHEDULE)


def close_breakers(names: list[str], *, by: Actor) -> list[Resource]:
    """Close those of these breakers that are not closed, because an operator asked for it; returns their resources."""
    rights.demand(by, rights.LIMITS)
    closed = list(Resource.objects.filter(name__in=names).exclude(breaker_state=Resource.Breaker.CLOSED))
    circuit_breaker.close([resource.name for resource in closed])
    for resource in closed:
        log(by, resource, f"breaker closed by hand by {name_of(by)}")
    hints.send(hints.SCHEDULE)
    return closed


def hindrances(resource: Resource) -> list[str]:
    """Why this resource cannot be deleted now: the services, routes and unfinished orders that still need it."""
    service = resource.service or resource.name
    found = []
    members = Resource.objects.filter(service=service).exclude(pk=resource.pk)
    if service in services() and not members.exists() and not (resource.service and Resource.objects.filter(name=service).exists()):
        found.append(_("It is the only resource of %(service)s.") % {"service": service})
    if ResourceRoute.objects.filter(resource=resource.name).exists():
        found.append(_("Routes lead to it."))
    # A step that may have had its effect there must be retried and undone there: other resources do not know its key.
    sent = StepState.objects.filter(_sent_to(resource, service), run__process_state__in=_UNFINISHED)
    if sent.exclude(effect=Effect.NONE, process_state__in=[*FINAL_STEP_STATES, ProcessState.ERROR]).exists():
        found.append(_("Unfinished orders have steps that were sent to it: their retries and their undo must go there too."))
    return found


def _sent_to(resource: Resource, service: str) -> Q:
    """The steps that this resource took. While it was the service's only one, they do not name it."""
    named = Q(resource=resource.name)
    if resource.name != service:
        return named
    mine = [agent.name for agent in agents() if agent.resource == service]
    return named | (Q(resource=None, agent__in=mine) & ~Q(effect=Effect.NONE))
