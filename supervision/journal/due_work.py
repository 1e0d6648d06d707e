"""The work of the journal's writers: keys with waiting entries, open files of past days, old rows to delete."""

from __future__ import annotations

import time
from dataclasses import dataclass

from supervision import conf
from supervision.postgres import db


@dataclass(frozen=True)
class Waiting:
    """A key with entries that wait, counted to a bound. holder: the writer that has a valid lease, or None."""

    key: str
    entries: int
    seconds: float
    holder: str | None


# One index access per key, no matter how many entries wait under it.
_WAITING = """
WITH RECURSIVE waiting (key) AS (
    (SELECT key FROM supervision_journalentry WHERE written_at IS NULL AND failed_at IS NULL ORDER BY key LIMIT 1)
    UNION ALL
    SELECT (SELECT e.key FROM supervision_journalentry e
             WHERE e.written_at IS NULL AND e.failed_at IS NULL AND e.key > w.key ORDER BY e.key LIMIT 1)
      FROM waiting w WHERE w.key IS NOT NULL)
SELECT w.key, oldest.entries, oldest.seconds, CASE WHEN l.until > clock_timestamp() THEN l.holder END
  FROM waiting w
 CROSS JOIN LATERAL (
       SELECT count(*) AS entries, greatest(extract(epoch FROM clock_timestamp() - min(appended_at)), 0)::float8 AS seconds
         FROM (SELECT e.appended_at FROM supervision_journalentry e
                WHERE e.key = w.key AND e.written_at IS NULL AND e.failed_at IS NULL
                ORDER BY e.id LIMIT %(most)s) first) oldest
  LEFT JOIN supervision_writerlease l ON l.key = w.key
 WHERE w.key IS NOT NULL
"""

_YESTERDAYS = """
SELECT DISTINCT key FROM supervision_journalfile
 WHERE closed_at IS NULL AND (opened_at AT TIME ZONE 'UTC')::date < (now() AT TIME ZONE 'UTC')::date
"""
# Deletes the oldest rows first, page by page, until rows are too young: the cost is that of the deleted rows, without an index.
_FORGET = """
WITH page AS MATERIALIZED (
    SELECT id, file_id, appended_at FROM supervision_journalentry WHERE id > %(after)s ORDER BY id LIMIT %(size)s),
gone AS (
    DELETE FROM supervision_journalentry e USING page p, supervision_journalfile f
     WHERE e.id = p.id AND f.id = p.file_id AND f.closed_at < now() - %(keep)s::interval
    RETURNING 1)
SELECT (SELECT count(*) FROM gone), max(id), bool_or(appended_at > now() - %(keep)s::interval) FROM page
"""


def waiting(most: int) -> list[Waiting]:
    """The keys with entries that wait, each counted to `most`."""
    return [Waiting(*row) for row in db.run(_WAITING, {"most": most}, patience=2.0)]


def yesterdays() -> list[str]:
    """The keys with open files of a past day."""
    return [key for (key,) in db.run(_YESTERDAYS, patience=2.0)]


def delete_old(seconds: float, *, size: int = 1000) -> int:
    """Remove the rows of events in files that were closed long ago, for at most so many seconds; returns how many.

    Failed events stay: an operator may still have to look at them.
    """
    keep = conf.get().journal_keep
    until = time.monotonic() + seconds
    removed, after = 0, 0
    while keep is not None and time.monotonic() < until:
        [(count, highest, young)] = db.run(_FORGET, {"after": after, "size": size, "keep": keep}, patience=2.0)
        removed += count
        if highest is None or young:
            break
        after = highest
    return removed
