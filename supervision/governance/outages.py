"""Incidents for services that are out: one for each resource whose circuit breaker is not closed, or that fails its only order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from django.utils.translation import gettext as _

from supervision.breaker import CLOSED
from supervision.governance import resources
from supervision.incidents.lifecycle import CRITICAL, Cause, detector
from supervision.postgres import db
from supervision.runtime.humanize import clock

UNREACHABLE, REFUSES_US = "unreachable", "refuses_us"  # codes of failures that show the service's fault by themselves

# Nearly always no rows. A breaker stays closed although the threshold is reached where only one order calls and fails.
_OUT = """
SELECT name, CASE service WHEN '' THEN name ELSE service END, breaker_state, failures, opened_at, last_error, last_code,
       coalesce((SELECT array_agg(run::bigint) FROM jsonb_array_elements_text(suspects) run), '{}'), now()
  FROM supervision_resource WHERE breaker_state <> 'closed' OR failures >= breaker_threshold
 ORDER BY name
"""
_TAKING_CALLS = """
SELECT DISTINCT CASE service WHEN '' THEN name ELSE service END FROM supervision_resource WHERE breaker_state = 'closed' AND NOT paused
"""
_WAITING = """
SELECT agent, count(*), count(*) FILTER (WHERE resource = ANY (%(names)s::text[]) AND effect <> 'none') FROM supervision_stepstate
 WHERE process_state = 'Pending' AND not_before IS NOT NULL AND turn_at IS NOT NULL AND agent = ANY (%(agents)s::text[])
 GROUP BY agent
"""
_FAILING_SINCE = "SELECT min(failing_since) FROM supervision_stepstate WHERE run_id = ANY (%(runs)s::bigint[])"


class _Out(NamedTuple):
    name: str
    service: str
    breaker_state: str
    failures: int
    opened_at: datetime | None
    last_error: str
    last_code: str
    suspects: Sequence[int]
    now: datetime


@detector("outage")
def outages() -> Iterator[Cause]:
    """Every resource whose breaker is not closed, or that fails the only order that calls it."""
    out = [_Out(*row) for row in db.run(_OUT)]
    if not out:
        return
    waiting = _waiting([one for one in out if one.breaker_state != CLOSED])
    for one in out:
        lone = one.breaker_state == CLOSED
        since = _first_failure(one.suspects) if lone else one.opened_at
        yield Cause(
            kind="outage",
            key=f"outage:{one.name}",
            title=_title(one, clock(since), lone=lone),
            severity=CRITICAL,
            resource=one.name,
            code=one.last_code,
            orders=len(one.suspects) if lone else waiting[one.name],
            since=since,
        )


def _waiting(out: Sequence[_Out]) -> dict[str, int]:
    """How many steps wait for each resource: all steps of its service, or only those bound to it if another resource takes calls."""
    taking = {service for (service,) in db.run(_TAKING_CALLS)} if out else set()
    counts = {}
    for one in out:
        rows = db.run(_WAITING, {"names": [one.name], "agents": resources.agents_of([one.service])})
        counts[one.name] = sum(bound if one.service in taking else every for _agent, every, bound in rows)
    return counts


def _first_failure(runs: Sequence[int]) -> datetime | None:
    since: datetime | None = db.run(_FAILING_SINCE, {"runs": list(runs)})[0][0] if runs else None
    return since


def _title(one: _Out, since: str, *, lone: bool) -> str:
    facts = {"name": one.name, "since": since, "error": " ".join(one.last_error.split())[:300], "n": one.failures}
    if one.last_code == REFUSES_US:
        return _("%(name)s refuses us since %(since)s, and no order gets further there: %(error)s") % facts
    if lone:
        return _("%(name)s fails the only order that calls it since %(since)s (%(n)d times): %(error)s") % facts
    return _("%(name)s is out since %(since)s: %(error)s") % facts
