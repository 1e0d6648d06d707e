"""The statements by which a scenario empties the store and lets time pass."""

from __future__ import annotations

# Deleting a scenario's few rows is quicker than truncating tables. Run ids go on, so no late message matches a later run.
FORGET = ";".join(
    f"DELETE FROM supervision_{table}"  # noqa: S608 - the names below
    for table in ("stepevent", "stepstate", "strayreply", "effect", "alert", "notification", "deadletter", "run", "submission")
)

SHIFT = """
WITH d AS (SELECT %(seconds)s::float8 * interval '1 s' AS d),
r AS (UPDATE supervision_run SET complete_by = complete_by - d, created_at = created_at - d, finished_at = finished_at - d FROM d),
e AS (UPDATE supervision_stepevent SET at = at - d FROM d)
UPDATE supervision_stepstate SET complete_by = complete_by - d, not_before = not_before - d, turn_at = turn_at - d,
       started_at = started_at - d, finished_at = finished_at - d
  FROM d
"""
