"""The statements of bulk jobs: choosing orders, previewing them, taking a job, recording results, deleting old jobs."""

from __future__ import annotations

# Which runs a verb can act on now.
MAY = {
    "resubmit": "r.process_state = 'Error' AND f.name IS NOT NULL",
    "skip": "r.process_state = 'Error' AND f.name IS NOT NULL",
    "cancel": "r.process_state IN ('Pending', 'Processing', 'Error') AND (r.direction = 'do' OR r.resume_from IS NOT NULL)",
    "compensate": "r.process_state IN ('Pending', 'Processing', 'Error') AND (r.direction = 'do' OR r.resume_from IS NOT NULL)",
    "abandon": "r.process_state IN ('Pending', 'Processing', 'Compensating', 'Error')",
}

# Nothing where the form of this key has started a job. It waits for another transaction that is about to do so.
BEGIN = """
INSERT INTO supervision_job (verb, filter, changes, reason, account, started_by, total, held, key)
VALUES (%(verb)s, %(filter)s::jsonb, %(changes)s::jsonb, %(reason)s, %(account)s, %(by)s, 0, '[]', %(key)s)
ON CONFLICT (key) DO NOTHING RETURNING id
"""

# The chosen runs, each with the first of its failed steps, in the order in which the verbs see them (`LockedRun.failed`).
_CHOSEN = """
  FROM unnest(%(runs)s::bigint[], %(seen)s::int[], %(at)s::text[]) v(id, seen, at)
  JOIN supervision_run r ON r.id = v.id
  LEFT JOIN LATERAL (
       SELECT s.name, s.attempt FROM supervision_stepstate s
        WHERE s.run_id = r.id AND s.direction = r.direction AND s.process_state = 'Error' AND %(step)s::text IN ('', s.name)
        ORDER BY CASE s.direction WHEN 'do' THEN s.position ELSE -s.position END LIMIT 1) f ON true
"""


def freeze(verb: str) -> str:
    """Write a row for each of these runs on which the verb can act; returns the runs."""
    return f"""
INSERT INTO supervision_jobresult (job_id, number, run_id, key, step, attempt)
SELECT %(job)s, row_number() OVER (ORDER BY r.id), r.id, r.key, coalesce(v.at, f.name, ''), coalesce(v.seen, f.attempt)
{_CHOSEN} WHERE {MAY[verb]}
RETURNING run_id
"""


# The steps that a verb is about: those that failed, or those that have or may have had an effect and can be undone.
_FAILED = "s.direction = r.direction AND s.process_state = 'Error' AND %(step)s::text IN ('', s.name)"
_TO_UNDO = (
    "s.direction = 'do' AND s.agent = ANY (%(undoable)s::text[])"
    " AND (s.effect <> 'none' OR (s.process_state = 'Processing' AND s.started_at IS NOT NULL))"
)


def preview(verb: str) -> str:
    """The runs on which the verb can act, in groups that it would treat alike: the largest first."""
    about = _FAILED if verb in ("resubmit", "skip") else _TO_UNDO
    return f"""
SELECT r.workflow, r.version, r.process_state, r.direction, g.names, g.reused,
       (SELECT a.code FROM supervision_alert a WHERE a.run_id = r.id AND a.closed_at IS NULL AND a.kind = 'error' ORDER BY a.id LIMIT 1),
       count(*), array_agg(r.id)
{_CHOSEN}
  LEFT JOIN LATERAL (
       SELECT coalesce(array_agg(s.name ORDER BY s.position), '{{}}') AS names, bool_or(s.effect <> 'none' AND s.attempt > 0) AS reused
         FROM supervision_stepstate s WHERE s.run_id = r.id AND {about}) g ON true
 WHERE {MAY[verb]}
 GROUP BY 1, 2, 3, 4, 5, 6, 7 ORDER BY 8 DESC, 1, 2, 3, 4, 5
"""


# One job that no other process works on: the one that has waited longest, so that a short job does not wait for a long one. A
# process that is frozen in a batch holds the lock until its transaction ends (FREEZE_SECONDS), one that was killed does not.
TAKE = """
WITH job AS MATERIALIZED (
    SELECT id FROM supervision_job
     WHERE state = 'running' AND (leased_until IS NULL OR leased_until < clock_timestamp() OR leased_by = %(me)s
            OR leased_until > clock_timestamp() + 3 * %(lease)s::float8 * interval '1 s') -- by a clock that has been put back
     ORDER BY worked_at, id LIMIT 1 FOR UPDATE SKIP LOCKED)
UPDATE supervision_job j SET leased_by = %(me)s, leased_until = clock_timestamp() + %(lease)s::float8 * interval '1 s'
  FROM job WHERE j.id = job.id
RETURNING j.id
"""
GIVE_BACK = "UPDATE supervision_job SET leased_by = '', leased_until = NULL WHERE id = %(job)s AND leased_by = %(me)s"
STANDING = """
SELECT EXISTS (SELECT FROM supervision_job
                WHERE state = 'running' AND (leased_until IS NULL OR leased_until < clock_timestamp()
                       OR leased_until > clock_timestamp() + 3 * %(lease)s::float8 * interval '1 s'))
"""
BOUND = "SELECT set_config('idle_in_transaction_session_timeout', %(milliseconds)s, true)"

RECORD = """
UPDATE supervision_jobresult t
   SET outcome = v.outcome, process_state = v.process_state, code = v.code, message = v.message, acted_at = clock_timestamp()
  FROM unnest(%(ids)s::bigint[], %(outcomes)s::text[], %(states)s::text[], %(codes)s::text[], %(messages)s::text[])
         v(id, outcome, process_state, code, message)
 WHERE t.id = v.id AND t.outcome = 'waiting'
RETURNING t.id
"""
ADVANCE = """
UPDATE supervision_job
   SET position = position + %(done)s + %(failed)s, done = done + %(done)s, failed = failed + %(failed)s, moved = %(moved)s::jsonb,
       worked_at = clock_timestamp(), leased_until = clock_timestamp() + %(lease)s::float8 * interval '1 s'
 WHERE id = %(job)s AND state = 'running' AND leased_by = %(me)s AND position = %(position)s
RETURNING id
"""
FINISH = """
UPDATE supervision_job SET state = 'done', finished_at = clock_timestamp(), leased_by = '', leased_until = NULL
 WHERE id = %(job)s AND state = 'running' AND position = total
RETURNING extract(epoch FROM finished_at - started_at)::float8
"""
# holder: only while the job is this process's; empty: also while another process has it.
STOP = """
UPDATE supervision_job
   SET state = 'stopped', stopped_at = clock_timestamp(), stopped_by = %(by)s, stop_reason = %(reason)s, leased_by = '', leased_until = NULL
 WHERE id = %(job)s AND %(holder)s IN ('', leased_by) AND (state = 'running' OR (state = 'stopped' AND stopped_by = '' AND %(by)s <> ''))
RETURNING id
"""
RESUME = """
UPDATE supervision_job
   SET state = 'running', account = %(account)s, started_by = %(by)s, stopped_at = NULL, stopped_by = '', stop_reason = '',
       worked_at = clock_timestamp()
 WHERE id = %(job)s AND state = 'stopped'
RETURNING id
"""
# The orders that wait get a result in the same statement. No batch is under way in a stopped job: a batch holds the job's row.
END = """
WITH j AS (
    UPDATE supervision_job
       SET state = 'done', finished_at = clock_timestamp(), failed = failed + total - position, position = total,
           stopped_at = clock_timestamp(), stopped_by = %(by)s, stop_reason = %(reason)s
     WHERE id = %(job)s AND state = 'stopped'
    RETURNING id),
r AS (
    UPDATE supervision_jobresult t
       SET outcome = 'refused', code = 'job_ended', message = %(message)s, acted_at = clock_timestamp()
      FROM j WHERE t.job_id = j.id AND t.outcome = 'waiting')
SELECT id FROM j
"""
AWAIT = """
UPDATE supervision_job
   SET approval = %(approval)s, state = 'stopped', stopped_at = clock_timestamp(), stopped_by = %(by)s, stop_reason = %(reason)s,
       account = %(account)s, started_by = %(by)s
 WHERE id = %(job)s AND (state = 'stopped' OR (state = 'running' AND position = 0))
RETURNING id
"""
APPROVED = """
UPDATE supervision_job
   SET state = 'running', stopped_at = NULL, stopped_by = '', stop_reason = '', worked_at = clock_timestamp()
 WHERE id = %(job)s AND state = 'stopped' AND approval IS NOT NULL
RETURNING id
"""
NOTIFY = """
INSERT INTO supervision_notification (kind, payload) VALUES ('job', jsonb_build_object('job', %(job)s::bigint))
"""

# Whether so many steps are claimed or running and orders wait to be begun, together. In the order of their indexes: without it a
# planner that expects many of them reads the table from its beginning.
BUSY = """
SELECT (SELECT count(*) FROM (SELECT 1 FROM supervision_stepstate WHERE process_state = 'Processing' ORDER BY run_id LIMIT %(many)s) s)
     + (SELECT count(*) FROM (SELECT 1 FROM supervision_submission WHERE consumed_at IS NULL ORDER BY id LIMIT %(many)s) w) >= %(many)s
"""

# Orders of a job that its verb has set going and that stand in Error now.
IN_ERROR_AGAIN = """
SELECT count(*) FROM supervision_jobresult t JOIN supervision_run r ON r.id = t.run_id
 WHERE t.job_id = %(job)s AND t.outcome = 'done' AND r.process_state = 'Error'
"""

# Jobs that have rested for long enough go with their rows, a bounded number of rows in each statement, and each job in one
# transaction under its lock: a job that lost some of its rows could still be resumed.
_RESTED = "state <> 'running' AND coalesce(finished_at, stopped_at) < now() - %(days)s::float8 * interval '1 day'"
AT_ONCE = 20
OLD = f"SELECT id FROM supervision_job WHERE {_RESTED} ORDER BY id LIMIT {AT_ONCE}"
LOCK_OLD = f"SELECT id FROM supervision_job WHERE id = %(job)s AND {_RESTED} FOR UPDATE SKIP LOCKED"
DELETE_RESULTS = """
DELETE FROM supervision_jobresult WHERE id IN (SELECT id FROM supervision_jobresult WHERE job_id = %(job)s ORDER BY number LIMIT %(page)s)
RETURNING id
"""
DELETE_JOB = "DELETE FROM supervision_job WHERE id = %(job)s"
