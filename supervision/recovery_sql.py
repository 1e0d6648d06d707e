"""The guarded statements by which attempts that failed or expired are settled: FAIL, SWEEP and what belongs to them.

Each with its safety argument, under the same rules as those in `sql`. Only `recovery` executes them.
"""

from __future__ import annotations

from supervision.known_versions import known_only

_FACTS = "s.run_id, s.direction, s.position, s.attempt, s.started_at IS NOT NULL, s.failure_count, s.dispatch_count"

# FAIL, first half: the reported claims that still stand, locked, with what the decision needs.
HOLD_FAILED = f"""
SELECT {_FACTS}
  FROM unnest(%(runs)s::bigint[], %(attempts)s::int[]) v(run_id, attempt)
  JOIN supervision_stepstate s
    ON s.run_id = v.run_id AND s.direction = %(direction)s AND s.position = %(position)s AND s.attempt = v.attempt
   AND s.process_state || '' = 'Processing' AND s.complete_by > now()
 ORDER BY s.run_id FOR UPDATE OF s
"""

# SWEEP, first half: expired claims, locked, oldest first. Only Processing rows can expire: a backlog of Pending rows
# is nobody's failure. What becomes of a step stands in its version's plan: where this code does not know that, the step is
# left to a process that does. SKIP LOCKED: two supervisors at once share the work and count each expiry once. What this
# sweep could not settle is passed over, so that it does not stand before the others for ever.
HOLD_OVERDUE = f"""
SELECT {_FACTS}
  FROM supervision_stepstate s
 WHERE s.process_state = 'Processing' AND s.complete_by < now() AND s.run_id NOT IN (SELECT unnest(%(passed_over)s::bigint[]))
       AND {known_only("s.run_id")}
 ORDER BY s.complete_by LIMIT %(limit)s
   FOR UPDATE OF s SKIP LOCKED
"""

# Attempts that began, or were claimed, in the future: the clock that set their deadlines ran ahead and was put right. Only
# the row and its event say so. How far away a deadline may lie is for the code that set it to know, and that may be newer
# or older than this one. Their deadlines pass at once, and the sweep takes them like any other: too early is safe, because
# the attempt is the fence and the key stays the same. A claim that waits to be started asks for its event only where its
# deadline is further away than `slack`, which is rare.
RECALL = """
WITH c AS MATERIALIZED (
    SELECT s.run_id, s.direction, s.position FROM supervision_stepstate s
     WHERE s.process_state = 'Processing' AND s.complete_by > now() + %(slack)s::float8 * interval '1 s'
       AND coalesce(s.started_at, (
               SELECT max(e.at) FROM supervision_stepevent e
                WHERE e.run_id = s.run_id AND e.direction = s.direction AND e.position = s.position
                  AND e.attempt = s.attempt AND e.to_state = 'Processing')) > now() + %(slack)s::float8 * interval '1 s'
     ORDER BY s.complete_by LIMIT %(limit)s
       FOR UPDATE OF s SKIP LOCKED)
UPDATE supervision_stepstate s SET complete_by = now() - interval '1 us'
  FROM c WHERE s.run_id = c.run_id AND s.direction = c.direction AND s.position = c.position
   AND s.process_state || '' = 'Processing'
"""

# For how long the services of these claims' steps have failed them. Read without a lock: only the claim's holder changes it.
FAILING_FOR = """
SELECT s.run_id, extract(epoch FROM clock_timestamp() - s.failing_since)::float8
  FROM unnest(%(runs)s::bigint[], %(attempts)s::int[]) v(run_id, attempt)
  JOIN supervision_stepstate s
    ON s.run_id = v.run_id AND s.direction = %(direction)s AND s.position = %(position)s AND s.attempt = v.attempt
"""

# A breaker opens: what was counted since the service's last success was the outage's fault. Addressed by the runs that
# the breaker has noted, locked in the order in which everybody locks; what has ended meanwhile is left as it is.
GIVE_BACK = """
WITH g AS MATERIALIZED (
    SELECT s.run_id, s.direction, s.position FROM supervision_stepstate s
     WHERE s.run_id = ANY (%(runs)s::bigint[]) AND s.blamed_count > 0 AND s.agent = ANY (%(agents)s::text[])
       AND s.process_state || '' IN ('Pending', 'Processing')
     ORDER BY s.run_id, s.direction, s.position FOR UPDATE OF s)
UPDATE supervision_stepstate s SET failure_count = greatest(s.failure_count - s.blamed_count, 0), blamed_count = NULL
  FROM g WHERE s.run_id = g.run_id AND s.direction = g.direction AND s.position = g.position
"""

# The sweep holds its step already, so it takes what comes before it only where nobody else has it, and otherwise leaves
# the run to the next sweep: it is about to be undone or skipped by somebody who will see the same.
TAKE_EARLIER = """
SELECT s.run_id FROM unnest(%(runs)s::bigint[], %(positions)s::smallint[]) v(run_id, position)
  JOIN supervision_stepstate s ON s.run_id = v.run_id AND s.direction = 'do' AND s.position < v.position
 ORDER BY s.run_id, s.position FOR UPDATE OF s SKIP LOCKED
"""

# FAIL and SWEEP, in between: the runs of the steps just locked. A statement of its own, because a join in the one that
# locks would show the run as it was before the wait (only the locked row is read again): a step whose order was
# cancelled meanwhile would be retried. Whoever turns a run round locks its steps first, so now it stands still.
RUN_FACTS = """
SELECT id, workflow, version, direction, complete_by < now() FROM supervision_run WHERE id = ANY(%(runs)s)
"""

# One open alert of a step and kind: a later one writes itself over what is still open, and belongs to another incident
# where it has another code.
STILL_OPEN = """ON CONFLICT (run_id, position, direction, kind) WHERE closed_at IS NULL DO UPDATE
       SET generation = excluded.generation, message = excluded.message, code = excluded.code, severity = excluded.severity,
           cause = CASE WHEN supervision_alert.code = excluded.code THEN supervision_alert.cause ELSE '' END"""

# FAIL and SWEEP, second half: what was decided, re-checked by attempt and state on the locked rows. The run's Error,
# and the alert commit with the step's. An alert of kind error is what stops the run: a step in Error without one is
# undone in the same transaction. A step has one open alert of a kind: what is still open tells of the newest failure.
SETTLE = f"""
WITH v AS (
    SELECT * FROM unnest(%(runs)s::bigint[], %(directions)s::text[], %(positions)s::smallint[], %(attempts)s::int[],
                         %(states)s::text[], %(delays)s::float8[], %(failures)s::int[], %(dispatches)s::int[],
                         %(effects)s::text[], %(errors)s::text[], %(whys)s::text[], %(alerts)s::text[],
                         %(failings)s::float8[], %(blames)s::smallint[], %(codes)s::text[],
                         %(severities)s::text[])
             v(run_id, direction, position, attempt, state, delay, failures, dispatches, effect, error, why, alert,
               failing, blame, code, severity)),
u AS (
    UPDATE supervision_stepstate s
       SET process_state = v.state, locked_by = NULL,
           complete_by = CASE WHEN v.state = 'Pending'
                              THEN now() + (v.delay + %(pickup)s::float8) * interval '1 s' END,
           not_before = CASE WHEN v.state = 'Pending' THEN now() + v.delay * interval '1 s' ELSE s.not_before END,
           turn_at = coalesce(s.turn_at, now()),
           failure_count = s.failure_count + v.failures, dispatch_count = s.dispatch_count + v.dispatches,
           effect = coalesce(v.effect, s.effect), last_error = coalesce(v.error, s.last_error),
           finished_at = CASE WHEN v.state IN ('Skipped', 'Cancelled') THEN now() END,
           failing_since = coalesce(s.failing_since, now() - v.failing * interval '1 s'),
           blamed_count = CASE v.blame WHEN 0 THEN NULL WHEN 1 THEN coalesce(s.blamed_count, 0) + 1 WHEN 2 THEN 1
                                       ELSE s.blamed_count END,
           seq = s.seq + CASE WHEN v.alert = 'error' THEN 2 ELSE 1 END
      FROM v
     WHERE s.run_id = v.run_id AND s.direction = v.direction AND s.position = v.position AND s.attempt = v.attempt
       AND s.process_state || '' = 'Processing'
    RETURNING s.run_id, s.direction, s.position, s.attempt, s.generation, s.name, s.seq, v.state, v.why, v.error, v.alert,
              v.code, v.severity),
r AS (
    UPDATE supervision_run r SET process_state = 'Error'
      FROM u WHERE u.alert = 'error' AND r.id = u.run_id AND r.process_state || '' IN ('Processing', 'Compensating')
    RETURNING r.id, r.direction),
ev AS (
    INSERT INTO supervision_stepevent (run_id, seq, position, direction, attempt, from_state, to_state, actor, why)
    SELECT run_id, CASE WHEN alert = 'error' THEN seq - 1 ELSE seq END, position, direction, attempt, 'Processing', state,
           %(me)s, why FROM u
    UNION ALL
    SELECT u.run_id, u.seq, NULL::smallint, NULL, NULL::int,
           CASE r.direction WHEN 'do' THEN 'Processing' ELSE 'Compensating' END, 'Error', %(me)s, u.why
      FROM u JOIN r ON r.id = u.run_id),
a AS (
    INSERT INTO supervision_alert (run_id, position, direction, generation, kind, step, message, code, severity)
    SELECT run_id, position, direction, generation, alert, name, coalesce(why, ''), code, severity FROM u WHERE alert IS NOT NULL
    {STILL_OPEN})
SELECT run_id, direction, position, state FROM u
"""

# Steps whose effect is unknown and whose key was first used so long ago that the remote service has forgotten it.
# What an operator has resubmitted was looked at: its time counts from then.
FORGOTTEN_KEYS = """
SELECT s.run_id FROM unnest(%(runs)s::bigint[]) v(run_id)
  JOIN supervision_stepstate s
    ON s.run_id = v.run_id AND s.direction = 'do' AND s.position = %(position)s AND s.effect = 'unknown'
 WHERE (SELECT coalesce(max(e.at) FILTER (WHERE e.from_state = 'Error'),
                        min(e.at) FILTER (WHERE e.direction = 'do' AND e.to_state = 'Processing'))
          FROM supervision_stepevent e
         WHERE e.run_id = s.run_id AND e.position = s.position AND e.direction IN ('do', %(direction)s))
       < now() - %(ttl)s::float8 * interval '1 s'
"""
