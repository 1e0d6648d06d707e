"""Statements that find what an earlier try of a hot-path statement committed before its answer was lost with the connection.

They only read. Only `step_verbs` executes them, after a lost connection, and adds their rows to the answer of the repeated try.
"""

from __future__ import annotations

# Only the process that holds a claim finishes it, so an event of the same attempt by this process proves the earlier commit.
DONE = """
WITH d AS MATERIALIZED (
    SELECT s.run_id, s.position, e.seq, e.at
      FROM unnest(%(runs)s::bigint[], %(attempts)s::int[]) v(run_id, attempt)
      JOIN supervision_stepstate s
        ON s.run_id = v.run_id AND s.direction = %(direction)s AND s.position = %(position)s AND s.attempt = v.attempt
       AND s.process_state || '' = 'Processed'
      JOIN supervision_stepevent e
        ON e.run_id = s.run_id AND e.direction = s.direction AND e.position = s.position AND e.attempt = s.attempt
       AND e.to_state = 'Processed' AND e.actor = %(me)s)"""

# The next step is ours only if it is still in the claim of the same commit: its event is the next one, with the same time.
FINISH = f"""{DONE}
SELECT run_id, NULL::int, NULL::smallint, NULL::text, NULL::jsonb, NULL::float8, NULL::bool FROM d
UNION ALL
SELECT s.run_id, s.attempt, s.generation, s.idempotency_key, s.checkpoint,
       extract(epoch FROM s.complete_by - now())::float8, s.process_state = 'Pending'
  FROM d
  JOIN supervision_stepstate s ON s.run_id = d.run_id AND s.direction = 'do' AND s.position = d.position + 1
 WHERE (s.process_state || '' = 'Pending' AND s.not_before IS NOT NULL)
    OR (s.process_state || '' = 'Processing' AND s.locked_by = %(me)s AND s.complete_by > now()
        AND (s.started_at IS NOT NULL) = %(fuse)s
        AND EXISTS (SELECT FROM supervision_stepevent n
                     WHERE n.run_id = d.run_id AND n.seq = d.seq + 1 AND n.at = d.at AND n.direction = 'do'
                       AND n.position = s.position AND n.attempt = s.attempt AND n.to_state = 'Processing'))
"""

FINISH_LAST = f"""{DONE}
SELECT run_id, false, NULL::text FROM d
UNION ALL
SELECT r.id, true, r.session_key FROM d JOIN supervision_run r ON r.id = d.run_id AND r.process_state || '' = 'Processed'
"""

FINISH_UNDO = f"{DONE} SELECT run_id FROM d"

# Attempts of these claims that started after this call began were started by its lost try. If another process handles the
# same message at the same moment, the agent is called a second time, under the same key.
START = """
SELECT s.run_id, s.attempt, s.generation, s.idempotency_key, s.checkpoint, r.key, r.payload,
       p.idempotency_key, p.result, p.checkpoint, extract(epoch FROM s.complete_by - now())::float8,
       s.awaits, extract(epoch FROM s.awaits_until - now())::float8
  FROM unnest(%(runs)s::bigint[], %(attempts)s::int[]) v(run_id, attempt)
  JOIN supervision_stepstate s
    ON s.run_id = v.run_id AND s.direction = %(direction)s AND s.position = %(position)s AND s.attempt = v.attempt
   AND s.process_state || '' = 'Processing' AND s.complete_by > now()
   AND s.started_at >= now() - %(elapsed)s::float8 * interval '1 s'
  JOIN supervision_run r ON r.id = s.run_id
  LEFT JOIN supervision_stepstate p
    ON %(direction)s = 'undo' AND p.run_id = s.run_id AND p.direction = 'do' AND p.position = s.position
 ORDER BY s.run_id
"""
