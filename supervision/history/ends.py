"""Deletes old batches of the chain with their links, the oldest first, once all rows that they cover are deleted."""

from __future__ import annotations

from datetime import timedelta

from supervision import conf
from supervision.postgres import db
from supervision.runtime.tidying import tidier

SIZE = 50
LEAST_DAYS = 90  # a trigger keeps younger batches

# Deletes the oldest batches without a gap, so that the rest is one chain. The newest batch stays, because the next one needs its head.
_DELETE_OLD = """
WITH first AS MATERIALIZED (
    SELECT b.number, b.made_at < now() - %(days)s::float8 * interval '1 day' AND NOT EXISTS (
           SELECT FROM supervision_historylink l
            WHERE l.batch = b.number
              AND CASE l.kind WHEN 'run' THEN EXISTS (SELECT FROM supervision_run r WHERE r.id = l.subject)
                                              OR EXISTS (SELECT FROM supervision_archivedrun a WHERE a.run_id = l.subject)
                       ELSE EXISTS (SELECT FROM django_admin_log g WHERE g.id = l.subject) END) AS over
      FROM (SELECT number, made_at FROM supervision_historybatch ORDER BY number LIMIT %(size)s) b),
over AS MATERIALIZED (
    SELECT number FROM first
     WHERE number < coalesce((SELECT min(number) FROM first WHERE NOT over), (SELECT max(number) FROM supervision_historybatch))),
links AS (DELETE FROM supervision_historylink WHERE batch = ANY (ARRAY(SELECT number FROM over))),
gone AS (DELETE FROM supervision_historybatch WHERE number = ANY (ARRAY(SELECT number FROM over)) RETURNING 1)
SELECT count(*) FROM gone
"""


@tidier("the history's chain")
def delete_old() -> bool:
    """Delete the oldest batches if they are older than RECORD_DAYS, and 90 days, and what they cover is gone. True if there may be more."""
    kept = conf.get().keep_records
    if kept is None:
        return False
    days = max(kept / timedelta(days=1), LEAST_DAYS)
    return bool(db.run(_DELETE_OLD, {"days": days, "size": SIZE})[0][0] == SIZE)
