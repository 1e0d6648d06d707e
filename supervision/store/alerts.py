"""Alerts: each says why one order needs an operator. Alerts with the same cause belong to one incident.

The transition that makes an alert necessary writes it (`SETTLE`, `run_verbs.raise_alert`). The operator's verb that ends the
condition closes it. This module corrects the rest: it closes alerts whose condition is over, gives a run in Error without
an open alert one, and puts every open alert into the incident of its cause.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django.utils.translation import gettext as _

from supervision import conf
from supervision.agent import agents
from supervision.incidents.lifecycle import CRITICAL, INFO, LONGEST_KEY, WARNING, Cause, after_looking, before_looking, detector, members
from supervision.postgres import db
from supervision.store.failure_sql import STILL_OPEN

PAGE = 2000  # open alerts that one pass reads; new ones beyond it wait for the next pass
STEP_ERROR = "step_error"

_page_after = 0

RAISE = f"""
INSERT INTO supervision_alert (run_id, position, direction, generation, kind, step, message, code, severity)
VALUES (%(run)s, %(position)s, %(direction)s, %(generation)s, %(kind)s, %(step)s, %(message)s, %(code)s, %(severity)s)
{STILL_OPEN}
"""  # noqa: S608 - a constant

# Alerts whose condition is over. Operators' verbs close those of kind error: such an alert found here was left by an
# older version of the code. Rows that another transaction has locked are left to the next pass.
_OVER = """
WITH page AS MATERIALIZED (
    SELECT id FROM supervision_alert WHERE closed_at IS NULL AND id > %(after)s ORDER BY id LIMIT %(page)s),
over AS MATERIALIZED (
    SELECT a.id FROM page JOIN supervision_alert a ON a.id = page.id
      LEFT JOIN supervision_stepstate s ON s.run_id = a.run_id AND s.direction = a.direction AND s.position = a.position
      LEFT JOIN supervision_run r ON r.id = a.run_id
     WHERE CASE a.kind
           WHEN 'error' THEN r.process_state IS DISTINCT FROM 'Error' OR s.process_state IS DISTINCT FROM 'Error'
           WHEN 'skipped' THEN a.acknowledged_at IS NOT NULL
           WHEN 'exhausted' THEN coalesce(s.process_state, '') NOT IN ('Pending', 'Processing') OR s.failure_count = 0
           ELSE NOT coalesce(s.process_state = 'Pending' OR (s.process_state = 'Processing' AND s.started_at IS NULL), false)
           END
       FOR UPDATE OF a SKIP LOCKED),
gone AS (UPDATE supervision_alert a SET closed_at = now() FROM over WHERE a.id = over.id)
SELECT count(*), coalesce(max(id), 0) FROM page
"""

# A run in Error without an open alert: written by an older version of the code, or by hand. Error, its step and the
# alert commit together, so a healthy store has none.
_MISSING = """
WITH bare AS MATERIALIZED (
    (SELECT id FROM supervision_run WHERE process_state = 'Error'
     EXCEPT SELECT run_id FROM supervision_alert WHERE kind = 'error' AND closed_at IS NULL) LIMIT %(page)s)
INSERT INTO supervision_alert (run_id, position, direction, generation, kind, step, message)
SELECT s.run_id, s.position, s.direction, s.generation, 'error', s.name, coalesce(s.last_error, '')
  FROM bare JOIN supervision_run r ON r.id = bare.id
  JOIN supervision_stepstate s ON s.run_id = r.id AND s.direction = r.direction AND s.process_state || '' = 'Error'
ON CONFLICT DO NOTHING
"""
# Whether no such run exists. A superfluous alert could hide a missing one in these counts, so _OVER runs first.
_COMPLETE = """
SELECT (SELECT count(*) FROM supervision_run WHERE process_state = 'Error')
       = (SELECT count(DISTINCT run_id) FROM supervision_alert WHERE kind = 'error' AND closed_at IS NULL)
"""

# Gives each alert without a cause its cause. Failures of the same workflow, step, direction, resource and code are one incident.
_SORT = """
WITH new AS MATERIALIZED (
    SELECT id, run_id, position, direction, kind, step, code FROM supervision_alert
     WHERE closed_at IS NULL AND cause = '' ORDER BY id LIMIT %(page)s FOR UPDATE SKIP LOCKED),
sorted AS (
    SELECT new.id,
           left(CASE WHEN new.kind IN ('starvation', 'lost-dispatch') THEN 'starvation:agent.' || coalesce(s.agent, '')
                     ELSE 'step_error:' || coalesce(r.workflow, '') || ':' || new.step || ':' || new.direction || ':'
                          || coalesce(s.resource, m.resource, '') || ':' || new.code END, %(longest)s) AS cause
      FROM new
      LEFT JOIN supervision_run r ON r.id = new.run_id
      LEFT JOIN supervision_stepstate s ON s.run_id = new.run_id AND s.direction = new.direction AND s.position = new.position
      LEFT JOIN unnest(%(agents)s::text[], %(resources)s::text[]) m(agent, resource) ON m.agent = s.agent)
UPDATE supervision_alert a SET cause = sorted.cause, incident_id = i.id
  FROM sorted LEFT JOIN supervision_incident i ON i.cause = sorted.cause AND i.closed_at IS NULL
 WHERE a.id = sorted.id
"""

# For alerts whose cause has just got an incident, and for open alerts whose incident was closed.
_ATTACH = """
UPDATE supervision_alert a SET incident_id = i.id
  FROM supervision_incident i
 WHERE a.closed_at IS NULL AND i.cause = a.cause AND i.closed_at IS NULL AND a.incident_id IS DISTINCT FROM i.id
"""

_FAILING = """
SELECT f.cause, f.orders, f.serious, f.since, a.step, a.direction, a.code, a.message, a.kind
  FROM (SELECT cause, count(DISTINCT run_id) AS orders, count(DISTINCT run_id) FILTER (WHERE severity <> 'info') AS serious,
               min(raised_at) AS since, max(id) AS newest
          FROM supervision_alert WHERE closed_at IS NULL AND cause LIKE 'step\\_error:%%' GROUP BY cause) f
  JOIN supervision_alert a ON a.id = f.newest
"""


@before_looking
def tend() -> None:
    """Close alerts whose condition is over, raise missing ones, and give every new alert its cause."""
    global _page_after
    seen, last = db.fetch(_OVER, {"after": _page_after, "page": PAGE})[0]
    _page_after = last if seen == PAGE else 0
    if not db.fetch(_COMPLETE)[0][0]:
        db.fetch(_MISSING, {"page": PAGE})
    known = [(agent.name, agent.resource or "") for agent in agents()]
    params: dict[str, Any] = {
        "page": PAGE,
        "longest": LONGEST_KEY,
        "agents": [name for name, _resource in known],
        "resources": [resource for _name, resource in known],
    }
    db.fetch(_SORT, params)


@after_looking
def attach() -> None:
    """Put every open alert into the open incident of its cause."""
    db.fetch(_ATTACH)


@detector(STEP_ERROR)
def failing_steps() -> Iterator[Cause]:
    """One cause for each way in which a step fails: workflow, step, direction, resource and code."""
    most = conf.get().incident_critical_orders
    for cause, orders, serious, since, step, direction, code, message, kind in db.fetch(_FAILING):
        resource = cause.split(":", 5)[4] if cause.count(":") >= 5 else ""
        yield Cause(
            kind=STEP_ERROR,
            key=cause,
            title=_title(step, direction, kind, message or code),
            severity=INFO if not serious else CRITICAL if serious >= most else WARNING,
            resource=resource,
            step=step,
            code=code,
            orders=orders,
            since=since,
        )


def _title(step: str, direction: str, kind: str, message: str) -> str:
    facts = {"step": step, "message": " ".join(message.split())[:300]}
    if kind == "skipped":
        return _("%(step)s was given up, the orders went on: %(message)s") % facts
    if kind == "exhausted":
        return _("%(step)s fails again and again, the orders wait: %(message)s") % facts
    if direction == "undo":
        return _("%(step)s cannot be undone: %(message)s") % facts
    return _("%(step)s fails: %(message)s") % facts


@members(STEP_ERROR)
def runs_of_alerts(cause: str) -> Sequence[int]:
    """The runs with an open alert of this cause."""
    rows = db.run(
        "SELECT DISTINCT run_id FROM supervision_alert WHERE closed_at IS NULL AND cause = %(cause)s ORDER BY run_id", {"cause": cause}
    )
    return [run_id for (run_id,) in rows]


def close(run_id: int) -> None:
    """Close the errors of this run, inside the transaction that undoes it."""
    db.fetch(
        "UPDATE supervision_alert SET closed_at = now() WHERE run_id = %(run)s AND kind = 'error' AND closed_at IS NULL", {"run": run_id}
    )


def raise_one(**facts: Any) -> None:
    """Raise one alert, inside the transaction of the change that made it necessary. facts: the columns of RAISE by name."""
    db.fetch(RAISE, {"severity": WARNING, "code": "", **facts})
