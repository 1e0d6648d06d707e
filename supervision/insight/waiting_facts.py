"""The facts for the answer to "why is this order waiting?": two read-only statements for any number of orders.

The first reads the orders, the current step of each, and the work before it. The second reads what all orders share: pauses,
resources with their calls in flight, routes, and when each queue's consumers were last seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from supervision.agent import agents
from supervision.postgres import db
from supervision.states import BOUND_TO, SENT_HOME

COUNTED_UP_TO = 1000
ALIVE_SECONDS = 30.0  # a process that was seen within this time consumes its queues

# An order's current step is the first one that has not ended; of several branches one in Error, else one that runs, else one that
# is due, else one asleep. `before` is its place among those due at its agent, read
# from the head of the queue only, so that the cost is bounded for any backlog.
_ORDERS = f"""
WITH due AS MATERIALIZED (
    SELECT run_id, direction, position, agent, row_number() OVER (PARTITION BY agent ORDER BY turn_at) - 1 AS before
      FROM (SELECT run_id, direction, position, agent, turn_at FROM supervision_stepstate
             WHERE process_state = 'Pending' AND not_before IS NOT NULL AND not_before <= now() AND turn_at IS NOT NULL
             ORDER BY turn_at LIMIT %(most)s) d)
SELECT r.id, r.key, r.workflow, r.version, r.partition, now(), s.name, s.agent, s.direction, s.process_state, {BOUND_TO}, {SENT_HOME},
       s.failure_count, s.failing_since, s.last_error, s.not_before, s.complete_by, s.started_at,
       CASE WHEN s.process_state = 'Processing' AND s.started_at IS NULL THEN (
            SELECT max(e.at) FROM supervision_stepevent e
             WHERE e.run_id = s.run_id AND e.position = s.position AND e.to_state = 'Processing') END,
       EXISTS (SELECT FROM supervision_stepstate b
                WHERE b.run_id = r.id AND b.process_state || '' = 'Processing' AND b.direction <> s.direction),
       d.before, (SELECT count(*) FROM due o WHERE o.agent = s.agent),
       a.ahead, h.key, h.process_state, h.id,
       (SELECT e.name FROM supervision_stepstate e WHERE e.run_id = h.id AND e.process_state || '' = 'Error' LIMIT 1),
       s.position, s.awaits_until,
       CASE WHEN s.process_state = 'Pending' AND s.turn_at IS NULL AND s.not_before IS NOT NULL THEN s.awaits END,
       CASE WHEN s.process_state = 'Pending' AND s.turn_at IS NULL AND s.awaits LIKE 'child:%%' THEN (
            SELECT jsonb_build_object('many', bool_or(w.many), 'count', count(*), 'key', min(w.key),
                       'failed', min(w.key) FILTER (WHERE w.process_state = 'Error'),
                       'step', min(w.step) FILTER (WHERE w.process_state = 'Error'),
                       'errors', count(*) FILTER (WHERE w.process_state = 'Error'))
              FROM (SELECT c.key, c.many, b.process_state, e.name AS step
                      FROM supervision_child c LEFT JOIN supervision_run b ON b.key = c.key
                      LEFT JOIN LATERAL (SELECT e.name FROM supervision_stepstate e
                                          WHERE e.run_id = b.id AND e.process_state || '' = 'Error' LIMIT 1) e ON true
                     WHERE c.parent_key = r.key AND c.step = s.name AND c.state IN ('Started', 'Undoing')
                     ORDER BY b.process_state = 'Error' DESC NULLS LAST LIMIT %(most)s) w) END,
       s.process_state = 'Error' AND EXISTS (
            SELECT FROM supervision_alert l
             WHERE l.run_id = s.run_id AND l.position = s.position AND l.direction = s.direction AND l.kind = 'error'
               AND l.closed_at IS NULL AND l.severity = 'info')
  FROM supervision_run r
  JOIN LATERAL (
       SELECT * FROM supervision_stepstate s
        WHERE s.run_id = r.id AND s.direction = r.direction AND s.process_state || '' IN ('Pending', 'Processing', 'Error')
        ORDER BY s.process_state = 'Pending' AND s.not_before IS NULL, s.process_state <> 'Error', s.process_state <> 'Pending',
                 s.turn_at IS NULL,
                 CASE s.direction WHEN 'do' THEN s.position ELSE -s.position END LIMIT 1) s ON true
  LEFT JOIN due d ON d.run_id = s.run_id AND d.direction = s.direction AND d.position = s.position
  LEFT JOIN LATERAL (
       SELECT count(*) AS ahead, min(b.id) AS first
         FROM (SELECT b.id FROM supervision_run b
                WHERE b.session_key = r.session_key AND b.session_client = r.session_client AND b.finished_at IS NULL AND b.id < r.id
                ORDER BY b.id LIMIT %(most)s) b) a
       ON r.session_key IS NOT NULL AND s.process_state = 'Pending' AND s.not_before IS NULL
  LEFT JOIN supervision_run h ON h.id = a.first
 WHERE r.id = ANY (%(runs)s) AND r.finished_at IS NULL
"""  # noqa: S608 - our own expressions

# A scheduler that runs as a plain loop consumes no queue, but does the work of the scheduler's two queues.
_WORLD = """
SELECT 'pause', to_jsonb(p) FROM supervision_pause p WHERE p.lifted_at IS NULL AND (p.until IS NULL OR p.until > now())
UNION ALL
SELECT 'resource', jsonb_build_object(
           'name', name, 'service', CASE service WHEN '' THEN name ELSE service END, 'breaker', breaker_state,
           'opened_at', opened_at, 'retry_at', retry_at, 'capacity', capacity, 'rate', rate_per_second, 'paused', paused,
           'ahead', next_call_at > now(),
           'in_flight', (SELECT count(*) FROM supervision_slot s WHERE s.resource = r.name AND s.until > now()))
  FROM supervision_resource r
UNION ALL
SELECT 'route', jsonb_build_object('service', service, 'partition', partition, 'resource', resource) FROM supervision_resourceroute
UNION ALL
SELECT 'unknown', jsonb_build_object('cause', cause, 'title', title)
  FROM supervision_incident WHERE kind = 'unknown_version' AND closed_at IS NULL
UNION ALL
SELECT 'queue', jsonb_build_object('name', queue, 'age', extract(epoch FROM now() - max(seen_at)))
  FROM supervision_heartbeat h, jsonb_array_elements_text(
       CASE WHEN jsonb_typeof(h.detail->'queues') = 'array' THEN h.detail->'queues'
            WHEN h.role = 'scheduler' THEN '["scheduler", "submissions"]' ELSE '[]' END) queue
 GROUP BY queue
"""

_UNCONSUMED = """
SELECT u.public_id, now(), u.cancel_requested_at IS NOT NULL, (
       SELECT count(*) FROM (SELECT FROM supervision_submission b
                              WHERE b.consumed_at IS NULL AND b.id < u.id ORDER BY b.id LIMIT %(most)s) b)
  FROM supervision_submission u WHERE u.public_id = ANY (%(keys)s) AND u.consumed_at IS NULL
"""


@dataclass(frozen=True)
class Where:
    """One order: its current step, and the work before it. `known_due`: how many of its agent's due steps were read."""

    run_id: int
    key: str
    workflow: str
    version: int
    partition: str | None
    now: datetime
    step: str
    agent: str
    direction: str
    process_state: str
    bound: str | None  # the only resource that may take its step
    home: bool  # only the one of the service's own name may
    failure_count: int
    failing_since: datetime | None
    last_error: str | None
    not_before: datetime | None
    complete_by: datetime | None
    started_at: datetime | None
    claimed_at: datetime | None
    other_runs: bool
    before: int | None
    known_due: int
    session_ahead: int | None
    session_head: str | None
    session_head_state: str | None
    session_head_id: int | None
    session_head_step: str | None
    position: int
    awaits_until: datetime | None
    awaits: str | None  # only while the step is asleep
    children: dict[str, Any] | None  # of the unfinished runs that it waits for: how many, one of them, and those in Error
    for_customer: bool  # it is in Error, and its customer has to act, not an operator


@dataclass(frozen=True)
class Pausing:
    """A pause in force."""

    scope: str
    name: str
    run_id: int | None
    reason: str
    paused_by: str
    paused_at: datetime
    until: datetime | None


@dataclass(frozen=True)
class Remote:
    """A resource as its row shows it now."""

    name: str
    service: str
    breaker: str
    opened_at: datetime | None
    retry_at: datetime | None
    capacity: int | None
    rate: float | None
    paused: bool
    ahead: bool
    in_flight: int

    @property
    def full(self) -> bool:
        """Whether every slot is taken."""
        return self.capacity is not None and self.in_flight >= self.capacity


@dataclass
class World:
    """The facts that all orders share."""

    pauses: list[Pausing] = field(default_factory=list)
    serving: dict[str, list[Remote]] = field(default_factory=dict)
    routes: dict[tuple[str, str], str] = field(default_factory=dict)
    consumers: dict[str, float] = field(default_factory=dict)  # queue -> seconds since one of its processes was seen
    services: dict[str, str | None] = field(default_factory=dict)  # agent -> the service it calls
    unknown: dict[str, str] = field(default_factory=dict)  # open incidents of versions that no running process knows: cause -> title


def orders(run_ids: Sequence[int]) -> list[Where]:
    """The current step of each of these runs; runs that have ended are left out."""
    return [Where(*row) for row in db.fetch(_ORDERS, {"runs": list(run_ids), "most": COUNTED_UP_TO + 1})]


def unconsumed(keys: Sequence[str]) -> list[tuple[str, datetime, bool, int]]:
    """Of these public ids, those that wait to be consumed: the moment, whether cancelled, and how many are before each."""
    rows = db.fetch(_UNCONSUMED, {"keys": list(keys), "most": COUNTED_UP_TO + 1})
    return [(key, now, cancelled, before) for key, now, cancelled, before in rows]


def world() -> World:
    """The facts that all orders share, as of now."""
    seen = World(services={agent.name: agent.resource for agent in agents()})
    for kind, row in db.fetch(_WORLD):
        match kind:
            case "pause":
                seen.pauses.append(_pausing(row))
            case "resource":
                seen.serving.setdefault(row["service"], []).append(_remote(row))
            case "route":
                seen.routes[row["service"], row["partition"]] = row["resource"]
            case "unknown":
                seen.unknown[row["cause"]] = row["title"]
            case "queue":
                seen.consumers[row["name"]] = float(row["age"])
    return seen


def _pausing(row: dict[str, Any]) -> Pausing:
    since = datetime.fromisoformat(row["paused_at"])
    return Pausing(row["scope"], row["name"], row["run_id"], row["reason"], row["paused_by"], since, _moment(row["until"]))


def _remote(row: dict[str, Any]) -> Remote:
    return Remote(
        row["name"], row["service"], row["breaker"], _moment(row["opened_at"]), _moment(row["retry_at"]),
        row["capacity"], row["rate"], row["paused"], bool(row["ahead"]), row["in_flight"],
    )  # fmt: skip


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
