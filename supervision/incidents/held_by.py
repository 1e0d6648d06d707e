"""Finds the causes that may hold an order, from its current step. Reads only; two statements for any number of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from supervision.agent import agents
from supervision.incidents.lifecycle import holder, members
from supervision.postgres import db

# Each order's current step, its open alerts, whether it is paused itself, and the first run of its session if that blocks it.
_STANDING = """
SELECT r.id, r.workflow, r.version, s.agent, s.resource, s.process_state = 'Pending' AND s.not_before IS NULL,
       ARRAY(SELECT a.cause FROM supervision_alert a WHERE a.run_id = r.id AND a.closed_at IS NULL AND a.cause <> ''
              ORDER BY a.kind = 'error' DESC, a.id DESC),
       EXISTS (SELECT FROM supervision_pause p WHERE p.run_id = r.id AND p.scope = 'order' AND p.lifted_at IS NULL
                  AND (p.until IS NULL OR p.until > now())),
       CASE WHEN r.session_key IS NOT NULL AND s.process_state = 'Pending' AND s.not_before IS NULL THEN (
            SELECT min(b.id) FROM supervision_run b
             WHERE b.session_key = r.session_key AND b.session_client = r.session_client AND b.finished_at IS NULL AND b.id < r.id) END
  FROM supervision_run r
  LEFT JOIN LATERAL (
       SELECT * FROM supervision_stepstate s
        WHERE s.run_id = r.id AND s.direction = r.direction AND s.process_state || '' IN ('Pending', 'Processing', 'Error')
        ORDER BY s.process_state = 'Pending' AND s.not_before IS NULL,
                 CASE s.direction WHEN 'do' THEN s.position ELSE -s.position END LIMIT 1) s ON true
 WHERE r.id = ANY (%(runs)s) AND r.finished_at IS NULL
"""
_SERVING = "SELECT name, CASE service WHEN '' THEN name ELSE service END FROM supervision_resource"
_PAGE = 2000


class _Where(NamedTuple):
    run_id: int
    workflow: str
    version: int
    agent: str | None
    resource: str | None
    blocked: bool | None
    causes: list[str]
    paused: bool
    head: int | None


@holder
def causes_of(run_ids: Sequence[int]) -> Mapping[int, Sequence[str]]:
    """For each unfinished run, the causes that hold it if they have an open incident, the best explanation first."""
    serving: dict[str, list[str]] = {}
    for name, service in db.run(_SERVING):
        serving.setdefault(service, []).append(name)
    resources = {agent.name: serving.get(agent.resource, [agent.resource]) for agent in agents() if agent.resource is not None}
    found: dict[int, list[str]] = {}
    heads: dict[int, int] = {}
    for where in _read(run_ids):
        found[where.run_id] = _candidates(where, resources)
        if where.head is not None:
            heads[where.run_id] = where.head
    behind = {where.run_id: _candidates(where, resources) for where in _read(sorted(set(heads.values())))}
    for run_id, head in heads.items():
        found[run_id] += behind.get(head, [])
    return found


def _read(run_ids: Sequence[int]) -> list[_Where]:
    pages = [run_ids[start : start + _PAGE] for start in range(0, len(run_ids), _PAGE)]
    return [_Where(*row) for page in pages for row in db.run(_STANDING, {"runs": list(page)})]


def _candidates(where: _Where, resources: Mapping[str, Sequence[Any]]) -> list[str]:
    causes = [*where.causes, f"unknown_version:{where.workflow}:{where.version}"]
    if where.paused:
        causes.append("pause_overrun:order")
    causes += ["pause_overrun:all", f"pause_overrun:workflow:{where.workflow}"]
    if where.agent is not None and not (where.blocked and where.head is not None):
        serving = resources.get(where.agent, ())
        mine = [where.resource] if where.resource in serving else serving
        causes.append(f"pause_overrun:agent:{where.agent}")
        for name in mine:
            causes += [f"pause_overrun:resource:{name}", f"outage:{name}"]
        causes.append(f"starvation:agent.{where.agent}")
    return causes


_AT = """
SELECT DISTINCT s.run_id FROM supervision_stepstate s
 WHERE s.process_state IN ('Pending', 'Processing') AND s.agent = ANY (%(agents)s::text[])
   AND (s.process_state = 'Processing' OR (s.not_before IS NOT NULL AND s.turn_at IS NOT NULL))
   AND (s.resource IS NULL OR s.resource = %(resource)s)
 ORDER BY s.run_id
"""


@members("outage")
def runs_at(cause: str) -> Sequence[int]:
    """The runs whose step waits at this resource, or is under way there."""
    resource = cause.partition(":")[2]
    service = next((service for name, service in db.run(_SERVING) if name == resource), resource)
    chosen = [agent.name for agent in agents() if agent.resource == service]
    return [run_id for (run_id,) in db.run(_AT, {"agents": chosen, "resource": resource})]


@members("unknown_version")
def runs_of_version(cause: str) -> Sequence[int]:
    """The unfinished runs of this version of a workflow."""
    _kind, workflow, version = [*cause.split(":", 2), "", ""][:3]
    if not version.isdecimal():
        return []
    rows = db.run(
        "SELECT id FROM supervision_run WHERE process_state IN ('Pending', 'Processing', 'Error', 'Compensating')"
        " AND workflow = %(workflow)s AND version = %(version)s ORDER BY id",
        {"workflow": workflow, "version": int(version)},
    )
    return [run_id for (run_id,) in rows]
