"""Invariants of bulk jobs: every order has one result, the counts are those of the rows, and the orders' own histories agree.

The last two compare a job with what its orders' histories say, so they do not rest on the job's own rows.
"""

from __future__ import annotations

from collections.abc import Sequence

# The events that name a job, of the orders of jobs that were worked on lately.
_NAMED = """
       FROM supervision_job j
       JOIN supervision_jobresult t ON t.job_id = j.id
       JOIN supervision_run r ON r.id = t.run_id
       JOIN supervision_stepevent e ON e.run_id = t.run_id AND position(' (job ' || j.id || ': ' IN coalesce(e.why, '')) > 0
      WHERE j.worked_at > now() - interval '2 days'
"""
# Old jobs are deleted result by result.
_COUNTS = """
SELECT t.run_id, j.id AS job, j.state, j.total, j.position, j.done, j.failed, t.orders, t.runs, t.settled, t.carried_out
  FROM supervision_job j
  LEFT JOIN (SELECT job_id, min(run_id) AS run_id, count(*)::int AS orders, count(DISTINCT run_id)::int AS runs, max(number) AS last,
                    count(acted_at)::int AS settled, count(*) FILTER (WHERE outcome = 'done')::int AS carried_out,
                    coalesce(max(number) FILTER (WHERE acted_at IS NOT NULL), 0) AS newest
               FROM supervision_jobresult GROUP BY job_id) t ON t.job_id = j.id
 WHERE (j.total, j.total, j.total, j.position, j.position, j.done, j.position - j.failed)
       IS DISTINCT FROM (t.orders, t.runs, t.last, t.settled, t.newest, t.carried_out, t.carried_out)
   AND (j.state = 'running' OR coalesce(j.finished_at, j.stopped_at) > now() - interval '1 day')
UNION ALL
SELECT min(t.run_id), t.job_id, 'does not exist', NULL, NULL, NULL, NULL, count(*)::int, NULL, NULL, NULL
  FROM supervision_jobresult t WHERE NOT EXISTS (SELECT FROM supervision_job j WHERE j.id = t.job_id) GROUP BY t.job_id
"""
_HISTORY_AGREES = f"""
SELECT t.run_id, j.id AS job, t.number, t.outcome, 'the history does not name the job' AS what
  FROM supervision_job j
  JOIN supervision_jobresult t ON t.job_id = j.id AND t.outcome = 'done'
  JOIN supervision_run r ON r.id = t.run_id
 WHERE j.worked_at > now() - interval '2 days'
   AND NOT EXISTS (SELECT FROM supervision_stepevent e
                    WHERE e.run_id = t.run_id AND position(' (job ' || j.id || ': ' IN coalesce(e.why, '')) > 0)
UNION ALL
SELECT DISTINCT t.run_id, j.id, t.number, t.outcome, 'the history names the job' {_NAMED} AND t.outcome <> 'done'
"""  # noqa: S608 - constants
_ONCE = f"""
SELECT t.run_id, j.id AS job, e.direction, e.position, e.from_state, e.to_state, count(*) AS times
{_NAMED} GROUP BY 1, 2, 3, 4, 5, 6 HAVING count(*) > 1
"""

CHECKS: Sequence[tuple[str, str]] = (
    ("a job has one result for each of its orders, and counts them as they are", _COUNTS),
    ("an order's history names a job if and only if the job carried its verb out on it", _HISTORY_AGREES),
    ("a job carries its verb out on an order once", _ONCE),
)
