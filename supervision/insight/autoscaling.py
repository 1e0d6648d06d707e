"""How much work each agent has and how many consumers it needs: for autoscalers, graphs and operators.

Counted in the database only. A broker's queue length is misleading: it counts messages, of which one may carry 200 orders,
and not those that consumers have prefetched. Here a claimed step that has not started waits, wherever its message is.

    calls      = finished per second x mean seconds  +  backlog x mean seconds / target seconds
    calls     <= the capacity of the service's healthy resources, and their rate x mean seconds
    consumers  = calls / calls at once in one consumer, rounded up; at least 1 while there is anything to do

The first term keeps up with new orders (Little's law), the second works the backlog off within the target. The means are
those of the steps that finished lately, read from a bounded sample of runs around those being worked on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from supervision import conf
from supervision.agent import Agent, agents
from supervision.postgres import db
from supervision.store import step_sql
from supervision.store.claiming import lease

TARGET_SECONDS = 30.0
WINDOW_SECONDS = 300.0
SAMPLED_RUNS = 1000
UNKNOWN_MEAN_SECONDS = 1.0  # assumed of an agent none of whose steps has finished lately
ALIVE_SECONDS = 30.0

_COUNTS = f"""
SELECT s.agent,
       count(*) FILTER (WHERE s.process_state = 'Pending' OR s.started_at IS NULL),
       count(*) FILTER (WHERE s.process_state = 'Processing' AND s.started_at IS NOT NULL),
       count(*) FILTER (WHERE s.process_state = 'Processing' AND s.complete_by < now()),
       coalesce(extract(epoch FROM now() - min(coalesce(s.not_before, s.complete_by - %(lease)s::float8 * interval '1 s'))
                FILTER (WHERE CASE s.process_state WHEN 'Pending' THEN {step_sql.NOT_PAUSED} ELSE s.started_at IS NULL END)),
                0)::float8,
       count(*) FILTER (WHERE s.process_state = 'Pending' AND NOT ({step_sql.NOT_PAUSED}))
  FROM supervision_stepstate s
 WHERE s.process_state = 'Processing'
    OR (s.process_state = 'Pending' AND s.not_before IS NOT NULL AND s.turn_at IS NOT NULL AND s.not_before <= now())
 GROUP BY s.agent
"""  # noqa: S608 - a constant of ours

# Under a backlog the newest runs have not begun. So the sample also has the runs up to the newest one with a running step.
_PACE = """
WITH sample AS MATERIALIZED (
    (SELECT id FROM supervision_run ORDER BY id DESC LIMIT %(runs)s)
    UNION
    (SELECT id FROM supervision_run
      WHERE id <= (SELECT max(run_id) FROM supervision_stepstate WHERE process_state = 'Processing') ORDER BY id DESC LIMIT %(runs)s))
SELECT s.agent, count(*)::float8, avg(extract(epoch FROM s.finished_at - s.started_at))::float8,
       extract(epoch FROM now() - min(s.finished_at))::float8
  FROM sample JOIN supervision_stepstate s ON s.run_id = sample.id
 WHERE s.process_state || '' = 'Processed' AND s.started_at IS NOT NULL
   AND s.finished_at > now() - %(window)s::float8 * interval '1 s'
 GROUP BY s.agent
"""

_LIMITS = """
SELECT CASE service WHEN '' THEN name ELSE service END,
       CASE WHEN paused THEN 0 WHEN breaker_state = 'closed' THEN capacity ELSE probe_limit END, rate_per_second
  FROM supervision_resource
"""

# A process that serves only a partition of the queue (`agent.payment.2`) serves the queue.
_CONSUMERS = """
SELECT regexp_replace(queue, '[.][0-9]+$', '') AS served, count(DISTINCT h.incarnation)
  FROM supervision_heartbeat h, jsonb_array_elements_text(h.detail->'queues') queue
 WHERE h.seen_at > now() - %(alive)s::float8 * interval '1 s' AND jsonb_typeof(h.detail->'queues') = 'array'
 GROUP BY served
"""


@dataclass(frozen=True)
class Load:
    """One agent's load. held: how many of those that wait are paused. oldest_seconds: how long the oldest of the others has
    waited. consumers: processes that serve its queue and were seen lately."""

    agent: str
    waiting: int
    running: int
    overdue: int
    oldest_seconds: float
    held: int
    finished_per_second: float
    mean_seconds: float
    consumers: int
    recommended_calls: int
    recommended_consumers: int


@dataclass(frozen=True)
class Limit:
    """What a service's resources allow together: calls at once and calls per second; None = any number."""

    calls: int | None = None
    rate: float | None = None


def loads(target_seconds: float = TARGET_SECONDS) -> list[Load]:
    """Each agent's load; agents that have nothing to do are listed too."""
    counts = {row[0]: row[1:] for row in db.fetch(_COUNTS, {"lease": lease()})}
    pace = {row[0]: row[1:] for row in db.fetch(_PACE, {"runs": SAMPLED_RUNS, "window": WINDOW_SECONDS})}
    limits = _limits()
    alive: dict[str, int] = dict(db.fetch(_CONSUMERS, {"alive": ALIVE_SECONDS}))  # type: ignore[arg-type]
    known = {agent.name: agent for agent in agents()}
    found = []
    for name in sorted({*counts, *known}):
        waiting, running, overdue, oldest, held = counts.get(name, (0, 0, 0, 0.0, 0))
        finished, mean, span = pace.get(name, (0.0, None, 0.0))
        per_second = finished / max(span, 1.0)
        agent = known.get(name)
        limit = limits.get(agent.resource, Limit()) if agent is not None and agent.resource is not None else Limit()
        calls = recommended_calls(waiting - held, per_second, UNKNOWN_MEAN_SECONDS if mean is None else mean, limit, target_seconds)
        consumers = math.ceil(calls / calls_at_once(agent))
        if waiting - held + running and limit.calls != 0:
            calls, consumers = max(calls, 1), max(consumers, 1)
        queue = agent.queue if agent is not None else f"agent.{name}"
        pace_shown = round(per_second, 3), round(mean or 0.0, 4)
        found.append(Load(name, waiting, running, overdue, round(oldest, 3), held, *pace_shown, alive.get(queue, 0), calls, consumers))
    return found


def recommended_calls(backlog: int, per_second: float, mean_seconds: float, limit: Limit, target_seconds: float) -> int:
    """How many calls side by side keep up and work the backlog off in time; never more than the limit allows."""
    wanted = per_second * mean_seconds + backlog * mean_seconds / target_seconds
    if limit.rate is not None:
        wanted = min(wanted, limit.rate * mean_seconds)
    calls = math.ceil(wanted - 1e-9)
    return calls if limit.calls is None else min(calls, limit.calls)


def calls_at_once(agent: Agent | None) -> int:
    """How many calls one consumer makes side by side; an agent that works in this database takes a cohort at once."""
    return conf.get().cohort if agent is not None and agent.transactional else conf.get().agent_threads


def _limits() -> dict[str, Limit]:
    found: dict[str, Limit] = {}
    for service, calls, rate in db.fetch(_LIMITS):
        other = found.get(service, Limit(calls=0, rate=0.0))
        found[service] = Limit(
            None if calls is None or other.calls is None else calls + other.calls,
            None if rate is None or other.rate is None else rate + other.rate,
        )
    return found
