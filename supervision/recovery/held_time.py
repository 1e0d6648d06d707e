"""Held time: an order's wait for an open breaker, a pause, a limit or its session does not count against its time.

Held time is recomputed from rows: the order's waits from its events, pauses from their rows, and the times in which a
resource took no calls from `supervision_closure`, which a trigger maintains. The run's complete_by moves on by exactly the
time it was held since its last check (held_until). An order is checked when its time is nearly over, and before the engine
decides that it is over; so a wait costs no statement while it lasts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import NamedTuple

from supervision.agent import agents
from supervision.postgres import db
from supervision.runtime import tidying
from supervision.states import ATTEMPTS_PER_EPOCH
from supervision.workflow import workflows

MARGIN = timedelta(minutes=1)  # an order is checked this long, plus the time of the longest step, before its time is over
AGAIN_SECONDS = 60.0  # an order whose time is nearly over is checked at most this often
KEPT = timedelta(days=90)


class Looked(NamedTuple):
    """An order's state after its check. overdue: its own time is over. held: something holds it now."""

    run_id: int
    overdue: bool
    held: bool

    @property
    def over(self) -> bool:
        """Whether the order has to be stopped. An order that is held now is never stopped for its time."""
        return self.overdue and not self.held


# A run's waits lie between the events of its steps: from the moment a step became the next one, or went back to
# Pending, to its claim. Pauses shut an agent, and so do closures of the resource its step was sent to (the one of its service's name
# if the step names none), or of every resource of its service. A limit holds for the whole wait, and so does a session until an
# order's first claim. An order that fails at a service where no other order has succeeded since is held too, because it may not be
# to blame.
# In a run whose plan branches, a step waits while all steps before it are done: until its own next event, or until the run goes back
# and one of them is no longer done. What several branches wait at the same time counts once.
# The time asleep was added when the step fell asleep (`sleeping`): that wait of the step counts from its waking. Earlier sleeps were
# looked at before: `failures` does so before it puts off a step that has waited.
# A transaction that has locked a run's step may wait for the run; others skip it, because steps are locked before runs.
_EXTEND = """
WITH look AS MATERIALIZED (
    SELECT r.id, r.workflow, r.session_key, coalesce(r.held_until, r.created_at) AS since FROM supervision_run r
     WHERE r.id = ANY (%(runs)s::bigint[]) AND r.complete_by IS NOT NULL AND r.process_state || '' IN ('Pending', 'Processing')
     ORDER BY r.id FOR UPDATE {skip}),
earliest AS MATERIALIZED (SELECT min(since) AS at FROM look),
suspects AS MATERIALIZED (
    SELECT DISTINCT run::bigint AS run_id FROM supervision_resource x, jsonb_array_elements_text(x.suspects) run),
told AS MATERIALIZED (
    SELECT e.run_id, e.seq, e.position, e.attempt, e.to_state, e.at,
           lead(e.at) OVER (PARTITION BY e.run_id ORDER BY e.seq) AS next_at,
           NOT bool_or(e.to_state = 'Processing') OVER (PARTITION BY e.run_id ORDER BY e.seq) AS unclaimed,
           min(e.at) FILTER (WHERE e.to_state = 'Processing') OVER (PARTITION BY e.run_id) AS first_claim
      FROM supervision_stepevent e JOIN look l ON l.id = e.run_id
     WHERE e.seq = 1 OR (e.position IS NOT NULL AND e.direction = 'do')),
waits AS MATERIALIZED (
    SELECT l.id AS run_id, l.workflow, s.agent, n.next_at IS NULL AS lasts,
           CASE WHEN s.effect <> 'none' THEN coalesce(s.resource, CASE WHEN s.attempt < {epoch} THEN (
                SELECT a.service FROM unnest(%(agents)s::text[], %(services)s::text[]) a(agent, service) WHERE a.agent = s.agent)
                END) END AS resource,
           CASE WHEN t.unclaimed AND l.session_key IS NOT NULL
                THEN tstzmultirange(tstzrange(NULL, t.first_claim)) ELSE '{{}}' END AS in_session,
           CASE WHEN s.process_state || '' IN ('Pending', 'Processing') AND s.blamed_count IS NULL
                      AND s.run_id IN (SELECT run_id FROM suspects)
                THEN tstzmultirange(tstzrange(s.failing_since, NULL)) ELSE '{{}}' END AS undecided,
           CASE WHEN t.to_state = 'Processing' THEN 'empty'::tstzrange
                ELSE tstzrange(greatest(t.at, l.since, z.woken), greatest(t.at, l.since, z.woken, coalesce(n.next_at, now())))
                END AS during
      FROM told t JOIN look l ON l.id = t.run_id
      JOIN supervision_stepstate s
        ON s.run_id = t.run_id AND s.direction = 'do'
       AND CASE WHEN s.after IS NULL
                THEN s.position = CASE WHEN t.to_state IN ('Processed', 'Skipped') THEN t.position + 1 ELSE coalesce(t.position, 0) END
                WHEN t.position IS NULL THEN s.after = '{{}}'
                ELSE (t.position = s.position AND t.to_state IN ('Pending', 'Processing')
                      OR t.position = ANY (s.after) AND t.to_state IN ('Processed', 'Skipped'))
                     AND cardinality(s.after) = (
                     SELECT count(*) FILTER (WHERE e.to_state IN ('Processed', 'Skipped'))
                            - count(*) FILTER (WHERE e.from_state IN ('Processed', 'Skipped')) FROM supervision_stepevent e
                      WHERE e.run_id = t.run_id AND e.seq <= t.seq AND e.direction = 'do' AND e.position = ANY (s.after)) END
     CROSS JOIN LATERAL (
           SELECT CASE WHEN s.after IS NULL THEN t.next_at ELSE (
                  SELECT min(e.at) FROM supervision_stepevent e
                   WHERE e.run_id = t.run_id AND e.seq > t.seq AND e.direction = 'do' AND (e.position = s.position OR (
                         e.position = ANY (s.after) AND e.from_state IN ('Processed', 'Skipped')))) END AS next_at) n
     CROSS JOIN LATERAL (
           SELECT CASE WHEN t.to_state = 'Pending' AND t.attempt = s.awaits_attempt
                       THEN CASE WHEN s.turn_at IS NULL THEN 'infinity' ELSE s.not_before END END AS woken) z
     WHERE t.to_state IN ('Pending', 'Processing', 'Processed', 'Skipped') AND (n.next_at IS NULL OR n.next_at > l.since)),
stops AS MATERIALIZED (
    SELECT p.scope, p.name, p.run_id, tstzrange(p.paused_at, greatest(p.paused_at, least(p.lifted_at, p.until, now()))) AS during
      FROM supervision_pause p, earliest WHERE coalesce(least(p.lifted_at, p.until), 'infinity') > earliest.at),
orders AS MATERIALIZED (
    SELECT run_id, range_agg(during) AS shut FROM stops WHERE scope = 'order' AND run_id IS NOT NULL GROUP BY run_id),
resources AS MATERIALIZED (
    SELECT x.name, CASE x.service WHEN '' THEN x.name ELSE x.service END AS service,
           x.capacity IS NOT NULL OR x.rate_per_second IS NOT NULL AS limited,
           coalesce((SELECT range_agg(c.during)
                       FROM (SELECT tstzrange(c.began_at, greatest(c.began_at, coalesce(c.ended_at, now()))) AS during
                               FROM supervision_closure c, earliest
                              WHERE c.resource = x.name AND (c.ended_at IS NULL OR c.ended_at > earliest.at)
                             UNION ALL
                             SELECT tstzrange(x.opened_at, now()) WHERE x.breaker_state <> 'closed' AND x.opened_at < now()) c),
                    '{{}}') AS shut
      FROM supervision_resource x),
services AS MATERIALIZED (
    SELECT a.agent, bool_or(x.limited) AS limited, range_intersect_agg(x.shut) AS shut
      FROM unnest(%(agents)s::text[], %(services)s::text[]) a(agent, service) JOIN resources x ON x.service = a.service
     GROUP BY a.agent),
agents AS MATERIALIZED (
    SELECT k.workflow, k.agent, range_agg(x.during) AS shut
      FROM (SELECT DISTINCT workflow, agent FROM waits) k
      JOIN stops x ON x.scope = 'all' OR (x.scope = 'agent' AND x.name = k.agent) OR (x.scope = 'workflow' AND x.name = k.workflow)
     GROUP BY k.workflow, k.agent),
held AS MATERIALIZED (
    SELECT w.run_id, w.lasts, w.during,
           CASE WHEN v.limited AND NOT isempty(w.during) THEN tstzmultirange(tstzrange(NULL, NULL))
                ELSE coalesce(a.shut, '{{}}') + coalesce(o.shut, '{{}}') + coalesce(x.shut, v.shut, '{{}}') + w.undecided + w.in_session
                END AS shut
      FROM waits w
      LEFT JOIN agents a ON a.workflow = w.workflow AND a.agent = w.agent
      LEFT JOIN orders o ON o.run_id = w.run_id
      LEFT JOIN services v ON v.agent = w.agent
      LEFT JOIN resources x ON x.name = w.resource),
credit AS MATERIALIZED (
    SELECT run_id, coalesce((SELECT sum(upper(d) - lower(d)) FROM unnest(spans) d), interval '0') AS span, held
      FROM (SELECT run_id, range_agg(span) AS spans, bool_or(held) AS held
              FROM (SELECT h.run_id, c.span, h.lasts AND (upper_inf(h.shut) OR coalesce(upper(h.shut) >= now(), false)) AS held
                      FROM held h LEFT JOIN LATERAL unnest(h.shut * tstzmultirange(h.during)) c(span) ON true
                     UNION ALL
                    SELECT id, 'empty', false FROM look) each  -- one row for each, without a join of all with all
             GROUP BY run_id) run)
UPDATE supervision_run r SET complete_by = r.complete_by + c.span, held_until = now()
  FROM credit c WHERE r.id = c.run_id
RETURNING r.id, r.complete_by < now(), c.held
"""
_WAITING, _SKIPPING = (_EXTEND.format(skip=skip, epoch=ATTEMPTS_PER_EPOCH) for skip in ("", "SKIP LOCKED"))

# The page after (%(at)s, %(run)s) of runs whose time is over, or is nearly over and was not checked lately.
_DUE = """
SELECT r.complete_by, r.id, coalesce(%(began)s::timestamptz, now()) FROM supervision_run r
 WHERE r.complete_by < now() + %(margin)s::float8 * interval '1 s' AND r.process_state IN ('Pending', 'Processing')
   AND (r.complete_by, r.id) > (%(at)s::timestamptz, %(run)s::bigint)
   AND coalesce(r.held_until, r.created_at)
       < least(coalesce(%(began)s::timestamptz, now()),
               CASE WHEN r.complete_by >= now() THEN now() - %(again)s::float8 * interval '1 s' END)
 ORDER BY r.complete_by, r.id LIMIT %(limit)s
"""


def extend(runs: Sequence[int], *, wait: bool = True) -> list[Looked]:
    """Extend these runs' time by what they were held since the last check, in the caller's transaction or a new one.

    Returns the state of each run that has a complete_by and is Pending or Processing. wait: wait for a run that another
    transaction changes; only for callers that have locked the run's step. Without it such a run is left out.
    """
    if not runs:
        return []
    known = [(agent.name, agent.resource) for agent in agents() if agent.resource is not None]
    params = {"runs": sorted(runs), "agents": [name for name, _ in known], "services": [service for _, service in known]}
    return [Looked(*row) for row in db.run(_WAITING if wait else _SKIPPING, params)]


def overdue(limit: int) -> Iterator[list[int]]:
    """The runs whose time is over and that nothing holds, page by page, each checked once."""
    longest = max((step.complete_within for workflow in workflows() for step in workflow.steps), default=timedelta(0))
    fixed = {"margin": (longest + MARGIN).total_seconds(), "again": AGAIN_SECONDS, "limit": limit}
    at, run, began = "-infinity", 0, None
    while rows := db.run(_DUE, {**fixed, "at": at, "run": run, "began": began}):
        at, run, began = rows[-1]
        yield sorted(look.run_id for look in extend([run_id for _, run_id, _ in rows], wait=False) if look.over)
        if len(rows) < limit:
            return


@tidying.tidier("closures")
def delete_old() -> bool:
    """Delete closures that ended so long ago that no order's held time needs them: few rows, so all at once."""
    db.run(
        "DELETE FROM supervision_closure WHERE ended_at < now() - %(kept)s::float8 * interval '1 s'",
        {"kept": KEPT.total_seconds()},
    )
    return False
