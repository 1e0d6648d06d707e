"""Brings forward the `not_before` of steps that was set by a clock which ran ahead and has been put back since.

Without this, such a step would wait for the whole jump of the clock. It is recognised by its newest event, which lies in the future;
before its first attempt, which is never put off, by its `not_before` itself. What was left of its wait then counts from now.

The next sweep changes no step again, because a wait that was brought forward ends before that event. A wait that is longer than the
jump stays: it becomes at most twice as long. To begin too early is safe: a claim makes a new attempt under the same idempotency
key, and an agent that waits looks at the end of its wait, which does not change.
"""

from __future__ import annotations

from supervision.postgres import db

_BRING_FORWARD = """
WITH c AS MATERIALIZED (
    SELECT s.run_id, s.direction, s.position, e.at - now() AS jump
      FROM supervision_stepstate s
      LEFT JOIN LATERAL (
           SELECT e.at FROM supervision_stepevent e
            WHERE e.run_id = s.run_id AND e.direction = s.direction AND e.position = s.position
            ORDER BY e.seq DESC LIMIT 1) e ON true
     WHERE s.process_state = 'Pending' AND s.not_before > now() + %(slack)s::float8 * interval '1 s'
       AND (s.attempt = 0 OR (e.at > now() + %(slack)s::float8 * interval '1 s'
                              AND s.not_before > e.at - %(slack)s::float8 * interval '1 s' AND s.not_before < e.at + (e.at - now())))
     LIMIT %(limit)s
       FOR UPDATE OF s SKIP LOCKED)
UPDATE supervision_stepstate s
   SET not_before = CASE s.attempt WHEN 0 THEN now() ELSE greatest(s.not_before - c.jump, now()) END,
       turn_at = CASE WHEN s.attempt = 0 THEN s.turn_at - (s.not_before - now())
                      WHEN s.turn_at > now() THEN now() ELSE s.turn_at END,
       complete_by = s.complete_by - CASE s.attempt WHEN 0 THEN s.not_before - now() ELSE c.jump END
  FROM c WHERE s.run_id = c.run_id AND s.direction = c.direction AND s.position = c.position
   AND s.process_state || '' = 'Pending' AND s.not_before > now()
RETURNING 1
"""


def bring_forward(slack: float, limit: int) -> int:
    """Let up to `limit` steps begin when they were to begin by their own delay; returns how many."""
    return len(db.run(_BRING_FORWARD, {"slack": slack, "limit": limit}))
