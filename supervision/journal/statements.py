"""The journal's statements: leases, waiting entries, files. Only `entries`, `due_work` and this module write the tables.

Why an acknowledged event is in its file exactly once:

1. The lease has a fencing token, its term, which rises with every change of the holder. Before `settle` marks entries as
   written, it locks the lease's row with its holder and term: a writer that has lost the lease marks nothing.
2. A file's acknowledged length is updated in the same transaction that marks its entries. The next writer of a file cuts it
   to that length first. So unmarked entries are not in a file, and marked entries are.
3. Only the holder changes a key's files, and it reads their lengths after it got the lease. A file is continued only on the
   machine that began it, under a lock of its operating system, taken before the term is checked (`is_mine`). A writer that
   was frozen while it held this lock keeps the lock and the file; the next writer begins another file.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from django.db import transaction

from supervision import conf
from supervision.journal.files import host
from supervision.postgres import db

CHANNEL = "supervision_journal"


class LeaseLost(Exception):
    """Another writer holds this key's lease now."""


@dataclass(frozen=True)
class Entry:
    """An event that waits to be written."""

    id: int
    event_type: str
    event_id: str
    body: str
    appended_at: datetime


@dataclass(frozen=True)
class File:
    """An open file of a key."""

    id: int
    event_type: str
    path: str
    host: str
    columns: tuple[str, ...]
    length: int
    is_todays: bool


@dataclass(frozen=True)
class Grown:
    """One file's growth in a flush."""

    file: int
    start: int
    length: int
    entries: Sequence[int]


@dataclass(frozen=True)
class Settlement:
    """The outcome of a flush for each entry of its batch."""

    files: Sequence[Grown] = ()
    failed: dict[int, str] = field(default_factory=dict)

    @property
    def written(self) -> int:
        """How many entries are in files."""
        return sum(len(grown.entries) for grown in self.files)


_HOLD = """
INSERT INTO supervision_writerlease AS l (key, holder, term, until)
VALUES (%(key)s, %(holder)s, 1, clock_timestamp() + %(ttl)s::float8 * interval '1 s')
ON CONFLICT (key) DO UPDATE
   SET holder = excluded.holder, term = l.term + (l.holder IS DISTINCT FROM excluded.holder)::int, until = excluded.until
 WHERE l.holder = excluded.holder OR l.until < clock_timestamp()
    OR l.until > clock_timestamp() + 3 * %(ttl)s::float8 * interval '1 s' -- by a clock that has been put back
RETURNING term
"""
_MINE = " WHERE key = %(key)s AND holder = %(holder)s AND term = %(term)s "
_IS_MINE = "SELECT 1 FROM supervision_writerlease" + _MINE + "AND until > clock_timestamp()"  # noqa: S608 - constants
_LOCK = "SELECT 1 FROM supervision_writerlease" + _MINE + "FOR UPDATE"  # noqa: S608
_RENEW = (
    "UPDATE supervision_writerlease SET until = clock_timestamp() + %(ttl)s::float8 * interval '1 s', flushed_at = now(),"  # noqa: S608
    " last_error = '', failing_since = NULL" + _MINE + "RETURNING 1"
)
_TROUBLED = (
    "UPDATE supervision_writerlease SET until = clock_timestamp(), last_error = %(error)s,"  # noqa: S608
    " failing_since = coalesce(failing_since, now())" + _MINE
)

_BATCH = """
SELECT id, event_type, event_id, body, appended_at FROM supervision_journalentry
 WHERE key = %(key)s AND written_at IS NULL AND failed_at IS NULL ORDER BY id LIMIT %(most)s
"""
_FILES = """
SELECT id, event_type, path, host, columns, length, (opened_at AT TIME ZONE 'UTC')::date = (now() AT TIME ZONE 'UTC')::date
  FROM supervision_journalfile WHERE key = %(key)s AND closed_at IS NULL
"""
_CLOSE = "UPDATE supervision_journalfile SET closed_at = now() WHERE id = %(file)s AND closed_at IS NULL"
_OPEN = """
INSERT INTO supervision_journalfile (key, event_type, path, host, columns, term)
SELECT %(key)s, %(type)s, stem || lpad(number::text, greatest(3, length(number::text)), '0') || '.csv',
       %(host)s, %(columns)s::jsonb, %(term)s
  FROM (SELECT %(key)s || '/' || %(type)s || to_char(now() AT TIME ZONE 'UTC', '-YYYY-MM-DD-') AS stem) named
 CROSS JOIN LATERAL (SELECT 1 + count(*) AS number FROM supervision_journalfile f
                      WHERE f.key = %(key)s AND f.event_type = %(type)s AND starts_with(f.path, stem)) counted
RETURNING id, path
"""

_WRITTEN = """
UPDATE supervision_journalentry e SET written_at = now(), file_id = v.file
  FROM unnest(%(entries)s::bigint[], %(files)s::bigint[]) v(entry, file)
 WHERE e.id = v.entry AND e.written_at IS NULL AND e.failed_at IS NULL
RETURNING 1
"""
_FAILED = """
UPDATE supervision_journalentry e SET failed_at = now(), error = v.reason
  FROM unnest(%(entries)s::bigint[], %(reasons)s::text[]) v(entry, reason)
 WHERE e.id = v.entry AND e.written_at IS NULL AND e.failed_at IS NULL
RETURNING 1
"""
_GROWN = """
UPDATE supervision_journalfile f SET length = v.length, entries = f.entries + v.entries, term = %(term)s
  FROM unnest(%(files)s::bigint[], %(starts)s::bigint[], %(lengths)s::bigint[], %(counts)s::bigint[]) v(file, start, length, entries)
 WHERE f.id = v.file AND f.length = v.start AND f.closed_at IS NULL
RETURNING 1
"""


@dataclass(frozen=True)
class Lease:
    """One key's lease, held by one writer for one term."""

    key: str
    holder: str
    term: int

    @classmethod
    def hold(cls, key: str, holder: str) -> Lease | None:
        """Take or renew the lease of a key; None while another writer has it."""
        rows = db.run(_HOLD, {"key": key, "holder": holder, "ttl": _ttl()}, patience=2.0)
        return cls(key, holder, int(rows[0][0])) if rows else None

    @property
    def _mine(self) -> dict[str, object]:
        return {"key": self.key, "holder": self.holder, "term": self.term, "ttl": _ttl()}

    def is_mine(self) -> bool:
        """Whether the lease is valid and has this holder and term at this moment."""
        return bool(db.run(_IS_MINE, self._mine, patience=2.0))

    def release(self) -> None:
        """End the lease at once, if it is still ours."""
        db.run("UPDATE supervision_writerlease SET until = clock_timestamp()" + _MINE, self._mine, patience=2.0)  # noqa: S608

    def batch(self, most: int) -> list[Entry]:
        """The entries that wait now, oldest first. Later entries belong to the next batch."""
        return [Entry(*row) for row in db.run(_BATCH, {"key": self.key, "most": most}, patience=2.0)]

    def files(self) -> dict[str, File]:
        """The open files, by event type."""
        found = {}
        for file, event_type, path, on, columns, length, todays in db.run(_FILES, {"key": self.key}, patience=2.0):
            found[event_type] = File(file, event_type, path, on, tuple(columns), length, todays)
        return found

    def close(self, file: File) -> None:
        """Mark this file as closed: nothing more is written to it. Raises LeaseLost."""
        with transaction.atomic():
            self._lock()
            db.fetch(_CLOSE, {"file": file.id})

    def open(self, event_type: str, columns: Sequence[str], *, instead_of: File | None = None) -> File:
        """Open a new file, and close the one it replaces. Raises LeaseLost."""
        facts = {"key": self.key, "type": event_type, "host": host(), "columns": json.dumps(list(columns)), "term": self.term}
        with transaction.atomic():
            self._lock()
            if instead_of is not None:
                db.fetch(_CLOSE, {"file": instead_of.id})
            [(file, path)] = db.fetch(_OPEN, facts)
        return File(file, event_type, path, host(), tuple(columns), 0, is_todays=True)

    def _lock(self) -> None:
        if not db.fetch(_LOCK, self._mine):
            raise LeaseLost(self.key)

    def settle(self, settlement: Settlement) -> None:
        """Mark entries as written or failed and update the lengths, in one commit with a NOTIFY. Raises LeaseLost."""
        files, failed = settlement.files, settlement.failed
        with transaction.atomic():
            if not db.fetch(_RENEW, self._mine):
                raise LeaseLost(self.key)
            entries = {entry: grown.file for grown in files for entry in grown.entries}
            done = len(db.fetch(_WRITTEN, {"entries": list(entries), "files": list(entries.values())})) if entries else 0
            refused = len(db.fetch(_FAILED, {"entries": list(failed), "reasons": list(failed.values())})) if failed else 0
            moved = len(
                db.fetch(
                    _GROWN,
                    {
                        "files": [grown.file for grown in files],
                        "starts": [grown.start for grown in files],
                        "lengths": [grown.length for grown in files],
                        "counts": [len(grown.entries) for grown in files],
                        "term": self.term,
                    },
                )
            )
            if (done, refused, moved) != (len(entries), len(failed), len(files)):
                raise LeaseLost(f"{self.key}: another writer changed these rows")
            db.fetch("SELECT pg_notify(%(channel)s, %(key)s)", {"channel": CHANNEL, "key": self.key})

    def troubled(self, reason: str) -> None:
        """Record why the files cannot be written, which is an incident while it lasts, and let another writer try."""
        db.run(_TROUBLED, {**self._mine, "error": reason[:2000]}, patience=2.0)


def _ttl() -> float:
    return conf.get().journal_lease.total_seconds()
