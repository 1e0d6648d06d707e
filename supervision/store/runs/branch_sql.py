"""FINISH where the plan branches, and the statement that finds what an earlier try of it committed. Both follow the rules of `step_sql`.

Every step holds the number of steps that it still waits for. FINISH counts down the steps that come after the finished one,
and the statement that counts the last one makes that step due. Two branches that finish at once lock the row of the step at which they
join one after the other, and the second one reads what the first one wrote. While a run is in Error, each of its waiting
steps waits for one more thing, the run itself: FINISH records what comes to rest, and makes nothing due.

Rows are locked in the order of all statements: the finished steps by run, their successors in ascending order, the runs. The
run's row numbers the events and counts the open steps; the run is Processed with its last one.
"""

from __future__ import annotations

from supervision.store import lost_sql, step_sql

# The successor that this branch goes on with is claimed as in a list, if nothing holds it. Other steps become due.
_TAKEN = """(s.waits_for = 1 AND s.position = %(next)s AND s.name = %(step)s AND s.agent = %(agent)s
             AND NOT g.wait AND s.run_id <> ALL (g.held))"""

FINISH = f"""{step_sql.done(step_sql.IN_ORDER, step_sql.LOCKED)}
g AS MATERIALIZED (SELECT {step_sql.GATE_OF_A_STEP} AS wait, {step_sql.PAUSED_ORDERS} AS held),
b AS MATERIALIZED (
    SELECT s.run_id, s.position, d.turn_at, r.complete_by AS run_complete_by
      FROM d JOIN supervision_run r ON r.id = d.run_id
      JOIN supervision_stepstate s ON s.run_id = d.run_id AND s.direction = 'do' AND s.process_state || '' = 'Pending'
       AND %(position)s = ANY (s.after)
     ORDER BY s.run_id, s.position FOR UPDATE OF s),
n AS (
    UPDATE supervision_stepstate s
       SET waits_for = s.waits_for - 1,
           process_state = CASE WHEN {_TAKEN} THEN 'Processing' ELSE 'Pending' END,
           attempt = s.attempt + CASE WHEN {_TAKEN} THEN 1 ELSE 0 END,
           locked_by = CASE WHEN {_TAKEN} THEN %(me)s END,
           complete_by = CASE WHEN {_TAKEN} THEN least(now() + %(lease)s::float8 * interval '1 s', b.run_complete_by) END,
           started_at = CASE WHEN %(fuse)s AND {_TAKEN} THEN now() END,
           not_before = CASE WHEN s.waits_for = 1 AND NOT {_TAKEN} THEN now() ELSE s.not_before END,
           turn_at = CASE WHEN s.waits_for = 1 AND NOT {_TAKEN} THEN coalesce(b.turn_at, now()) ELSE s.turn_at END
      FROM b CROSS JOIN g
     WHERE s.run_id = b.run_id AND s.direction = 'do' AND s.position = b.position AND s.process_state || '' = 'Pending'
    RETURNING s.run_id, s.position, s.attempt, s.generation, s.idempotency_key, s.checkpoint,
              s.process_state = 'Processing' AS taken, s.waits_for = 0 AS due,
              extract(epoch FROM s.complete_by - now())::float8 AS remaining),
k AS MATERIALIZED (
    SELECT r.id FROM supervision_run r
     WHERE r.id IN (SELECT run_id FROM d) AND (SELECT count(*) FROM n) >= 0 ORDER BY r.id FOR UPDATE),
r AS (
    UPDATE supervision_run r
       SET event_seq = r.event_seq + 1 + d.taken + CASE WHEN r.open_steps = 1 AND r.process_state = 'Processing' THEN 1 ELSE 0 END,
           open_steps = r.open_steps - 1,
           process_state = CASE WHEN r.open_steps = 1 AND r.process_state = 'Processing' THEN 'Processed' ELSE r.process_state END,
           finished_at = CASE WHEN r.open_steps = 1 AND r.process_state = 'Processing' THEN now() ELSE r.finished_at END
      FROM (SELECT d.run_id, d.position, d.attempt, x.attempt + 1 AS next_attempt,
                   CASE WHEN d.run_id IN (SELECT run_id FROM n WHERE taken) THEN 1 ELSE 0 END AS taken
              FROM d LEFT JOIN supervision_stepstate x ON x.run_id = d.run_id AND x.direction = 'do' AND x.position = %(next)s) d
     WHERE r.id = d.run_id AND (SELECT count(*) FROM k) >= 0
    RETURNING r.id AS run_id, r.session_key, r.process_state, d.position, d.attempt, d.next_attempt, d.taken, r.event_seq AS newest,
              (r.process_state = 'Processed')::int AS closed),
ev AS (
    INSERT INTO supervision_stepevent (run_id, seq, position, direction, attempt, from_state, to_state, actor)
    SELECT run_id, newest - taken - closed, position, 'do', attempt, 'Processing', 'Processed', %(me)s FROM r
    UNION ALL
    SELECT run_id, newest - closed, %(next)s::smallint, 'do', next_attempt, 'Pending', 'Processing', %(me)s FROM r WHERE taken = 1
    UNION ALL
    SELECT run_id, newest, NULL::smallint, NULL, NULL::int, 'Processing', 'Processed', %(me)s FROM r WHERE closed = 1)
SELECT run_id, process_state, session_key, NULL::int, NULL::smallint, NULL::text, NULL::jsonb, NULL::float8 FROM r
UNION ALL
SELECT run_id, CASE WHEN taken THEN 'taken' ELSE 'due' END, NULL::text, attempt, generation, idempotency_key, checkpoint, remaining
  FROM n WHERE due
"""

# The step that the branch goes on with is ours only if it is still in the claim of the same commit: our event has the same time.
LOST = f"""{lost_sql.DONE}
SELECT r.id, r.process_state, r.session_key, NULL::int, NULL::smallint, NULL::text, NULL::jsonb, NULL::float8
  FROM d JOIN supervision_run r ON r.id = d.run_id
UNION ALL
SELECT s.run_id, CASE s.process_state WHEN 'Processing' THEN 'taken' ELSE 'due' END, NULL::text, s.attempt, s.generation,
       s.idempotency_key, s.checkpoint, extract(epoch FROM s.complete_by - now())::float8
  FROM d
  JOIN supervision_stepstate s ON s.run_id = d.run_id AND s.direction = 'do' AND %(position)s = ANY (s.after)
 WHERE (s.process_state || '' = 'Pending' AND s.not_before IS NOT NULL)
    OR (s.process_state || '' = 'Processing' AND s.locked_by = %(me)s AND s.complete_by > now() AND s.position = %(next)s
        AND (s.started_at IS NOT NULL) = %(fuse)s
        AND EXISTS (SELECT FROM supervision_stepevent e
                     WHERE e.run_id = d.run_id AND e.seq > d.seq AND e.at = d.at AND e.direction = 'do'
                       AND e.position = s.position AND e.attempt = s.attempt AND e.to_state = 'Processing'))
"""
