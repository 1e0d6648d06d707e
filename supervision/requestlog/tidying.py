"""Deletes old rows of the log: by their age and by their number, the oldest first, through the primary key."""

from __future__ import annotations

from supervision import conf
from supervision.postgres import db
from supervision.runtime.tidying import tidier

BATCH = 1_000

# Rows are written within seconds of their request, so the oldest rows have the smallest ids. Of the newest REQUEST_LOG_ROWS ids,
# each is kept; ids that were never used make the log shorter, by little.
_DELETE_OLD = """
WITH first AS MATERIALIZED (
    SELECT id, at FROM supervision_apirequest ORDER BY id LIMIT %(batch)s FOR UPDATE SKIP LOCKED)
DELETE FROM supervision_apirequest r USING first
 WHERE r.id = first.id
   AND (first.at < now() - %(days)s::float8 * interval '1 day'
        OR first.id <= (SELECT max(id) FROM supervision_apirequest) - %(rows)s::bigint)
RETURNING r.id
"""


@tidier("requests of API clients")
def delete_old() -> bool:
    """Remove a batch of what is older than REQUEST_LOG_DAYS or beyond the newest REQUEST_LOG_ROWS. Returns whether there may be more."""
    limits = conf.get()
    days = limits.keep_requests.total_seconds() / 86_400
    return len(db.run(_DELETE_OLD, {"days": days, "rows": limits.request_log_rows, "batch": BATCH})) == BATCH
