"""Starvation: Pending steps that no process picks up in time, and submissions that no scheduler consumes, without explanation.

A wait is explained by an open breaker, a paused resource, a pause or a limit, now or within the last PICKUP_SECONDS; by the
step's own time or session; or by an incident about the version. When the explanation has gone, a step has its whole pick-up
time again, so that a recovery raises no alarm. Each agent has one incident for all its orders. The oldest orders get an alert
each, which their own pages show.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from django.utils.translation import gettext as _

from supervision import conf
from supervision.agent import agents
from supervision.incidents.lifecycle import CRITICAL, WARNING, Cause, after_looking, detector, members
from supervision.postgres import db
from supervision.states import BOUND_TO, SENT_HOME

STARVATION = "starvation"
ALERTS = 200  # of one incident
SUBMISSIONS = f"{STARVATION}:submissions"
_AGENT = f"{STARVATION}:agent."

_PICKUP = "%(pickup)s::float8 * interval '1 s'"
_RECENT = f"now() - {_PICKUP}"
# A pause that is in force now, or was within the last PICKUP_SECONDS.
_STOPPED = f"(p.lifted_at IS NULL OR p.lifted_at > {_RECENT}) AND (p.until IS NULL OR p.until > {_RECENT})"

# Four facts, now or lately: whether all work is paused, or the in-flight limit is reached and steps still start; the agents
# that are paused, whose resources take no calls, or that are limited and make progress; the resources that take no calls; the
# agents of those among them that have their service's own name.
_FACTS = f"""
WITH a AS (SELECT * FROM unnest(%(agents)s::text[], %(services)s::text[]) a(agent, service)),
res AS MATERIALIZED (
    SELECT r.name, CASE r.service WHEN '' THEN r.name ELSE r.service END AS service,
           r.capacity IS NOT NULL OR r.rate_per_second IS NOT NULL AS limited, r.next_call_at > {_RECENT} AS busy,
           EXISTS (SELECT FROM supervision_closure c
                    WHERE c.resource = r.name AND (c.ended_at IS NULL OR c.ended_at > {_RECENT})) AS shut
      FROM supervision_resource r),
running AS MATERIALIZED (
    SELECT agent, count(*) AS n, max(started_at) AS newest FROM supervision_stepstate WHERE process_state = 'Processing' GROUP BY agent),
paused AS (SELECT p.name FROM supervision_pause p WHERE p.scope = 'agent' AND {_STOPPED}),
calm AS (
    SELECT a.agent FROM a
     WHERE EXISTS (SELECT FROM res WHERE res.service = a.service)
       AND (NOT EXISTS (SELECT FROM res WHERE res.service = a.service AND NOT res.shut)
            OR (EXISTS (SELECT FROM res WHERE res.service = a.service AND res.shut)
                AND EXISTS (SELECT FROM supervision_resourceroute t WHERE t.service = a.service))
            OR (EXISTS (SELECT FROM res WHERE res.service = a.service AND res.limited)
                AND (EXISTS (SELECT FROM running g WHERE g.agent = a.agent)
                     OR EXISTS (SELECT FROM res WHERE res.service = a.service AND res.busy)))))
SELECT EXISTS (SELECT FROM supervision_pause p WHERE p.scope = 'all' AND {_STOPPED})
       OR (SELECT coalesce(sum(n), 0) >= %(in_flight)s AND max(newest) > {_RECENT} FROM running),
       ARRAY(SELECT name FROM paused UNION SELECT agent FROM calm), ARRAY(SELECT name FROM res WHERE shut),
       ARRAY(SELECT a.agent FROM a JOIN res ON res.name = a.service AND res.service = a.service AND res.shut)
"""  # noqa: S608 - constants

_STARVING = f"""
  FROM supervision_stepstate s
 WHERE s.process_state = 'Pending' AND s.not_before IS NOT NULL AND s.turn_at IS NOT NULL AND s.not_before <= now()
   AND coalesce(s.complete_by, s.not_before + {_PICKUP}) < now()
   AND s.agent <> ALL (%(calm)s::text[])
   AND coalesce({BOUND_TO} <> ALL (%(shut)s::text[]), true) AND (s.agent <> ALL (%(homes)s::text[]) OR NOT {SENT_HOME})
   AND (s.direction = 'do' OR NOT EXISTS (
        SELECT FROM supervision_stepstate b WHERE b.run_id = s.run_id AND b.process_state || '' = 'Processing'))
   AND s.run_id <> ALL (ARRAY(SELECT p.run_id FROM supervision_pause p
                               WHERE p.scope = 'order' AND p.run_id IS NOT NULL AND {_STOPPED}))
   AND (NOT EXISTS (SELECT FROM supervision_pause p WHERE p.scope = 'workflow' AND {_STOPPED})
        OR (SELECT b.workflow FROM supervision_run b WHERE b.id = s.run_id)
           <> ALL (ARRAY(SELECT p.name FROM supervision_pause p WHERE p.scope = 'workflow' AND {_STOPPED})))
   AND (NOT EXISTS (SELECT FROM supervision_incident i WHERE i.kind = 'unknown_version' AND i.closed_at IS NULL)
        OR (SELECT 'unknown_version:' || b.workflow || ':' || b.version FROM supervision_run b WHERE b.id = s.run_id)
           <> ALL (ARRAY(SELECT i.cause FROM supervision_incident i WHERE i.kind = 'unknown_version' AND i.closed_at IS NULL)))
"""  # noqa: S608
# Steps that were never tried have no complete_by, but every released step has a turn_at: one partial index holds them all.
COUNT_STARVING = f"SELECT s.agent, count(*), min(coalesce(s.complete_by, s.not_before + {_PICKUP})) {_STARVING} GROUP BY s.agent"

_RAISE = f"""
WITH oldest AS (
    SELECT s.run_id, s.position, s.direction, s.generation, s.name, s.agent,
           row_number() OVER (PARTITION BY s.agent ORDER BY s.not_before, s.run_id) AS n {_STARVING})
INSERT INTO supervision_alert (run_id, position, direction, generation, kind, step, message, code, cause, incident_id)
SELECT o.run_id, o.position, o.direction, o.generation, 'starvation', o.name, %(message)s, 'starvation', i.cause, i.id
  FROM oldest o JOIN supervision_incident i ON i.cause = '{_AGENT}' || o.agent AND i.closed_at IS NULL
 WHERE o.n <= {ALERTS}
ON CONFLICT DO NOTHING
"""  # noqa: S608
_CALM = """
UPDATE supervision_alert a SET closed_at = now()
 WHERE a.kind = 'starvation' AND a.closed_at IS NULL
   AND NOT EXISTS (SELECT FROM supervision_incident i WHERE i.cause = a.cause AND i.closed_at IS NULL)
"""

_LOST = """
SELECT cause, count(DISTINCT run_id), min(raised_at) FROM supervision_alert
 WHERE closed_at IS NULL AND kind = 'lost-dispatch' GROUP BY cause
"""
_UNCONSUMED = f"""
SELECT count(*), min(created_at) + {_PICKUP} FROM supervision_submission WHERE consumed_at IS NULL AND created_at < {_RECENT}
"""  # noqa: S608


def _params() -> dict[str, Any] | None:
    """The statements' parameters; None where all work is paused, or the in-flight limit is reached."""
    now = conf.get()
    known = agents()
    params: dict[str, Any] = {
        "pickup": now.pickup_within.total_seconds(),
        "agents": [agent.name for agent in known],
        "services": [agent.resource for agent in known],
        "in_flight": now.in_flight,
    }
    stopped, calm, shut, homes = db.fetch(_FACTS, params)[0]
    return None if stopped else {"pickup": params["pickup"], "calm": calm, "shut": shut, "homes": homes}


@detector(STARVATION)
def starving() -> Iterator[Cause]:
    """One cause for each agent whose steps no process picks up or starts, and one for submissions that no scheduler consumes."""
    params = _params()
    found: dict[str, tuple[int, datetime | None]] = {}
    for agent, count, since in db.fetch(COUNT_STARVING, params) if params is not None else ():
        found[f"{_AGENT}{agent}"] = count, since
    for cause, count, since in db.fetch(_LOST):
        if cause:
            known, before = found.get(cause, (0, None))
            found[cause] = max(count, known), min(since, before or since)
    for cause, (count, since) in found.items():
        step = cause.removeprefix(_AGENT)
        yield _cause(cause, _("No process picks up the steps of %(agent)s.") % {"agent": step}, count, since)
    count, since = db.fetch(_UNCONSUMED, {"pickup": conf.get().pickup_within.total_seconds()})[0]
    if count:
        yield _cause(SUBMISSIONS, _("No scheduler takes up accepted orders."), count, since)


def _cause(key: str, title: str, count: int, since: datetime | None) -> Cause:
    severity = CRITICAL if count >= conf.get().incident_critical_orders else WARNING
    return Cause(kind=STARVATION, key=key, title=title, severity=severity, orders=count, since=since)


@after_looking
def raise_alerts() -> None:
    """Raise an alert for the oldest starving steps of each open incident, and close the alerts of closed incidents."""
    if db.fetch("SELECT 1 FROM supervision_incident WHERE kind = 'starvation' AND closed_at IS NULL LIMIT 1"):
        params = _params()
        if params is not None:
            db.fetch(_RAISE, {**params, "message": _("no process has picked this step up in time")})
    db.fetch(_CALM)


@members(STARVATION)
def runs_of(cause: str) -> Sequence[int]:
    """The runs whose steps starve at this agent, and the runs with an open alert of this cause."""
    params = _params()
    found = {run_id for (run_id,) in db.run("SELECT run_id FROM supervision_alert WHERE closed_at IS NULL AND cause = %(c)s", {"c": cause})}
    if params is not None and cause.startswith(_AGENT):
        rows = db.run(f"SELECT s.run_id {_STARVING} AND s.agent = %(agent)s", {**params, "agent": cause.removeprefix(_AGENT)})
        found |= {run_id for (run_id,) in rows}
    return sorted(found)
