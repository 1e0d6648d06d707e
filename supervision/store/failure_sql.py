"""The guarded statements that settle failed and expired attempts: FAIL, SWEEP and their helpers.

Each has its safety argument and follows the same rules as those in `step_sql`. Only `recovery.failures` executes them.
"""

from __future__ import annotations

# A condition: the code whose labels are in `known` knows the version of the run of the step `s`. Its first part is uncorrelated, as
# for pauses: while the code knows every registered version, no run's version is read.
KNOWN_ONLY = """(NOT EXISTS (SELECT FROM supervision_workflowversion w WHERE w.name || ' ' || w.version <> ALL (%(known)s::text[]))
            OR (SELECT k.workflow || ' ' || k.version FROM supervision_run k WHERE k.id = s.run_id) = ANY (%(known)s::text[]))"""

_FACTS = """s.run_id, s.direction, s.position, s.attempt, s.started_at IS NOT NULL, s.failure_count, s.dispatch_count,
       s.awaits IS NOT NULL"""

# FAIL, first half: the reported claims that still stand, locked, with what the decision needs.
HOLD_FAILED = f"""
SELECT {_FACTS}
  FROM unnest(%(runs)s::bigint[], %(attempts)s::int[]) v(run_id, attempt)
  JOIN supervision_stepstate s
    ON s.run_id = v.run_id AND s.direction = %(direction)s AND s.position = %(position)s AND s.attempt = v.attempt
   AND s.process_state || '' = 'Processing' AND s.complete_by > now()
 ORDER BY s.run_id FOR UPDATE OF s
"""

# SWEEP, first half: expired claims, locked, oldest first. Only Processing rows can expire: a backlog of Pending rows is not a
# failure. The plan of a run's version decides what happens to its step. If this code does not know the version, the step is
# left to a process that does. SKIP LOCKED: two supervisors at once share the work and count each expiry once. Runs that this
# sweep could not settle are passed over, so that they do not block the others for ever.
HOLD_OVERDUE = f"""
SELECT {_FACTS}
  FROM supervision_stepstate s
 WHERE s.process_state = 'Processing' AND s.complete_by < now() AND s.run_id NOT IN (SELECT unnest(%(passed_over)s::bigint[]))
       AND {KNOWN_ONLY}
 ORDER BY s.complete_by LIMIT %(limit)s
   FOR UPDATE OF s SKIP LOCKED
"""

# Attempts that began, or were claimed, in the future: the clock that set their deadlines ran ahead and was corrected. Only the
# row and its event show that. A distant deadline alone does not: newer or older code may have set it with other limits. The
# deadlines are set to the past, and the sweep takes these attempts like any other. Too early is safe, because the attempt
# is the fencing token and the idempotency key stays the same. For a claim that waits to be started, the event is read only
# where the deadline is further away than `slack`, which is rare.
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

# How long these claims' steps have been failing at their services. Read without a lock: only the claim's holder changes it.
FAILING_FOR = """
SELECT s.run_id, extract(epoch FROM clock_timestamp() - s.failing_since)::float8
  FROM unnest(%(runs)s::bigint[], %(attempts)s::int[]) v(run_id, attempt)
  JOIN supervision_stepstate s
    ON s.run_id = v.run_id AND s.direction = %(direction)s AND s.position = %(position)s AND s.attempt = v.attempt
"""

# A breaker opens: the failures counted since the service's last success were the outage's fault and are subtracted. The
# breaker has noted the runs. Rows are locked in the order that all statements use. Steps that have ended are left as they are.
GIVE_BACK = """
WITH g AS MATERIALIZED (
    SELECT s.run_id, s.direction, s.position FROM supervision_stepstate s
     WHERE s.run_id = ANY (%(runs)s::bigint[]) AND s.blamed_count > 0 AND s.agent = ANY (%(agents)s::text[])
       AND s.process_state || '' IN ('Pending', 'Processing')
     ORDER BY s.run_id, s.direction, s.position FOR UPDATE OF s)
UPDATE supervision_stepstate s SET failure_count = greatest(s.failure_count - s.blamed_count, 0), blamed_count = NULL
  FROM g WHERE s.run_id = g.run_id AND s.direction = g.direction AND s.position = g.position
"""

# The sweep already holds its step's lock. So it locks the earlier steps only where no other transaction holds them. Otherwise
# it leaves the run to the next sweep: the other transaction is about to undo or skip there, and sees the same facts.
TAKE_EARLIER = """
SELECT s.run_id FROM unnest(%(runs)s::bigint[], %(positions)s::smallint[]) v(run_id, position)
  JOIN supervision_stepstate s ON s.run_id = v.run_id AND s.direction = 'do' AND s.position < v.position
 ORDER BY s.run_id, s.position FOR UPDATE OF s SKIP LOCKED
"""

# FAIL, first of all, where the plan branches: all steps of these runs, and then the runs. A step that stops its run holds back
# the others.
LOCK_BRANCHED = """
WITH s AS MATERIALIZED (
    SELECT s.run_id FROM supervision_stepstate s WHERE s.run_id = ANY (%(runs)s::bigint[])
     ORDER BY s.run_id, s.direction, s.position FOR UPDATE)
SELECT r.id FROM supervision_run r
 WHERE r.id = ANY (%(runs)s::bigint[]) AND (SELECT count(*) FROM s) >= 0 ORDER BY r.id FOR UPDATE
"""

# SWEEP, likewise, but only the rows that no other transaction holds: a run of which one is held is left to the next sweep.
# Returns for each run whose plan branches whether it could be locked as a whole.
TAKE_BRANCHED = """
WITH b AS MATERIALIZED (
    SELECT r.id FROM supervision_run r WHERE r.id = ANY (%(runs)s::bigint[]) AND r.event_seq IS NOT NULL),
s AS MATERIALIZED (
    SELECT s.run_id FROM supervision_stepstate s WHERE s.run_id IN (SELECT id FROM b)
     ORDER BY s.run_id, s.direction, s.position FOR UPDATE SKIP LOCKED),
r AS MATERIALIZED (
    SELECT r.id FROM supervision_run r
     WHERE r.id IN (SELECT id FROM b) AND (SELECT count(*) FROM s) >= 0 ORDER BY r.id FOR UPDATE SKIP LOCKED)
SELECT b.id, b.id IN (SELECT id FROM r) AND (SELECT count(*) FROM s WHERE s.run_id = b.id)
             = (SELECT count(*) FROM supervision_stepstate t WHERE t.run_id = b.id) FROM b
"""

# FAIL and SWEEP, in between: the runs of the steps just locked. A statement of its own, because a join in the one that
# locks would show the run as it was before the wait (only the locked row is read again): a step whose order was cancelled
# meanwhile would be retried. A transaction that reverses a run locks its steps first, so the direction cannot change now.
RUN_FACTS = """
SELECT id, workflow, version, direction, complete_by < now(), process_state FROM supervision_run WHERE id = ANY(%(runs)s)
"""

# A step has at most one open alert of a kind. A later alert overwrites the open one. If its code is another, it belongs to
# another incident.
STILL_OPEN = """ON CONFLICT (run_id, position, direction, kind) WHERE closed_at IS NULL DO UPDATE
       SET generation = excluded.generation, message = excluded.message, code = excluded.code, severity = excluded.severity,
           cause = CASE WHEN supervision_alert.code = excluded.code THEN supervision_alert.cause ELSE '' END"""

# FAIL and SWEEP, second half: writes the decisions, checked again by attempt and state on the locked rows. The run's Error
# and the alert commit with the step's state. Only an alert of kind error stops the run: if a step in Error has none, its run
# is undone in the same transaction. An open alert describes the newest failure. Where the plan branches, the run's row numbers the
# events, each run is named once, and `stops` says whether this failure stops it: another branch may have stopped it before.
SETTLE = f"""
WITH v AS (
    SELECT * FROM unnest(%(runs)s::bigint[], %(directions)s::text[], %(positions)s::smallint[], %(attempts)s::int[],
                         %(states)s::text[], %(delays)s::float8[], %(failures)s::int[], %(dispatches)s::int[],
                         %(effects)s::text[], %(errors)s::text[], %(whys)s::text[], %(alerts)s::text[],
                         %(failings)s::float8[], %(blames)s::smallint[], %(codes)s::text[],
                         %(severities)s::text[], %(stops)s::bool[])
             v(run_id, direction, position, attempt, state, delay, failures, dispatches, effect, error, why, alert,
               failing, blame, code, severity, stops)),
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
              v.code, v.severity, v.stops, s.after IS NOT NULL AS branched),
r AS (
    UPDATE supervision_run r SET process_state = 'Error'
      FROM u WHERE u.alert = 'error' AND NOT u.branched AND r.id = u.run_id AND r.process_state || '' IN ('Processing', 'Compensating')
    RETURNING r.id, r.direction),
b AS (
    UPDATE supervision_run r
       SET event_seq = r.event_seq + CASE WHEN u.stops THEN 2 ELSE 1 END,
           process_state = CASE WHEN u.stops THEN 'Error' ELSE r.process_state END
      FROM u WHERE u.branched AND r.id = u.run_id
    RETURNING r.id, r.direction, r.event_seq, u.position, u.direction AS step_direction, u.attempt, u.state, u.why, u.stops),
ev AS (
    INSERT INTO supervision_stepevent (run_id, seq, position, direction, attempt, from_state, to_state, actor, why)
    SELECT run_id, CASE WHEN alert = 'error' THEN seq - 1 ELSE seq END, position, direction, attempt, 'Processing', state,
           %(me)s, why FROM u WHERE NOT branched
    UNION ALL
    SELECT id, event_seq - stops::int, position, step_direction, attempt, 'Processing', state, %(me)s, why FROM b
    UNION ALL
    SELECT id, event_seq, NULL::smallint, NULL, NULL::int, CASE direction WHEN 'do' THEN 'Processing' ELSE 'Compensating' END,
           'Error', %(me)s, why FROM b WHERE stops
    UNION ALL
    SELECT u.run_id, u.seq, NULL::smallint, NULL, NULL::int,
           CASE r.direction WHEN 'do' THEN 'Processing' ELSE 'Compensating' END, 'Error', %(me)s, u.why
      FROM u JOIN r ON r.id = u.run_id),
a AS (
    INSERT INTO supervision_alert (run_id, position, direction, generation, kind, step, message, code, severity)
    SELECT run_id, position, direction, generation, alert, name, coalesce(why, ''), code, severity FROM u WHERE alert IS NOT NULL
    {STILL_OPEN})
SELECT run_id, direction, position, state, stops, branched FROM u
"""

# Steps whose effect is unknown and whose key was first used so long ago that the remote service has forgotten it.
# If an operator has resubmitted the step, the time counts from then, because the operator has looked at it. If the run went on
# from an earlier step, the key is a new one since then.
FORGOTTEN_KEYS = """
SELECT s.run_id FROM unnest(%(runs)s::bigint[]) v(run_id)
  JOIN supervision_stepstate s
    ON s.run_id = v.run_id AND s.direction = 'do' AND s.position = %(position)s AND s.effect = 'unknown'
 WHERE (SELECT coalesce(max(e.at) FILTER (WHERE e.from_state IN ('Error', 'Processed', 'Skipped')),
                        min(e.at) FILTER (WHERE e.direction = 'do' AND e.to_state = 'Processing'))
          FROM supervision_stepevent e
         WHERE e.run_id = s.run_id AND e.position = s.position AND e.direction IN ('do', %(direction)s))
       < now() - %(ttl)s::float8 * interval '1 s'
"""
