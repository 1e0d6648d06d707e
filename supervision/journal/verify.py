"""Reports the journal's state (waiting entries, writers, files), and reads the files again to verify them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

from supervision import conf
from supervision.journal import csv_format
from supervision.journal.files import host
from supervision.models import JournalFile
from supervision.postgres import db

COUNTED_UP_TO = 100_000
CHUNK = 1000


@dataclass(frozen=True)
class KeyStatus:
    """One key's state at this moment; `waiting` is counted to a bound. holder: empty while no writer has the lease."""

    key: str
    waiting: int
    oldest_seconds: float
    failed: int
    holder: str
    term: int
    flushed_at: datetime | None
    failing_since: datetime | None
    last_error: str
    files: int
    open_files: int
    entries: int


_STATUS = """
SELECT k.key,
       (SELECT count(*) FROM (SELECT FROM supervision_journalentry e WHERE e.key = k.key AND e.written_at IS NULL
                                 AND e.failed_at IS NULL LIMIT %(most)s) counted),
       coalesce((SELECT extract(epoch FROM clock_timestamp() - e.appended_at) FROM supervision_journalentry e
                  WHERE e.key = k.key AND e.written_at IS NULL AND e.failed_at IS NULL ORDER BY e.id LIMIT 1), 0)::float8,
       (SELECT count(*) FROM (SELECT FROM supervision_journalentry e WHERE e.key = k.key AND e.failed_at IS NOT NULL
                               LIMIT %(most)s) counted),
       CASE WHEN l.until > clock_timestamp() THEN l.holder ELSE '' END, coalesce(l.term, 0), l.flushed_at, l.failing_since,
       coalesce(l.last_error, ''), coalesce(f.files, 0), coalesce(f.open_files, 0), coalesce(f.entries, 0)
  FROM (SELECT key FROM supervision_writerlease
        UNION SELECT DISTINCT key FROM supervision_journalentry WHERE written_at IS NULL AND failed_at IS NULL
        UNION SELECT DISTINCT key FROM supervision_journalfile) k
  LEFT JOIN supervision_writerlease l ON l.key = k.key
  LEFT JOIN (SELECT key, count(*) AS files, count(*) FILTER (WHERE closed_at IS NULL) AS open_files, sum(entries)::bigint AS entries
               FROM supervision_journalfile GROUP BY key) f ON f.key = k.key
 ORDER BY k.key
"""
# One statement, so that lengths and rows are of the same snapshot.
_FILES = """
SELECT f.id, f.key, f.path, f.host, f.columns, f.length, f.entries, coalesce(r.entries, 0),
       coalesce(f.closed_at < now() - %(keep)s::interval, false)
  FROM supervision_journalfile f
  LEFT JOIN (SELECT file_id, count(*) AS entries FROM supervision_journalentry WHERE written_at IS NOT NULL GROUP BY file_id) r
    ON r.file_id = f.id
 WHERE %(key)s::text IS NULL OR f.key = %(key)s
 ORDER BY f.id
"""
_OF_EVENTS = "SELECT event_id, file_id FROM supervision_journalentry WHERE event_id = ANY(%(ids)s) AND written_at IS NOT NULL"
_REST = """
SELECT count(*), max(id) FROM supervision_journalentry
 WHERE key = %(key)s AND written_at IS NULL AND failed_at IS NULL AND id <= %(up_to)s
"""


def status() -> list[KeyStatus]:
    """The state of every key."""
    return [KeyStatus(*row) for row in db.run(_STATUS, {"most": COUNTED_UP_TO}, patience=5.0)]


def files() -> list[dict[str, Any]]:
    """Every file with its acknowledged length, oldest first."""
    names = ("path", "host", "key", "event_type", "length", "entries", "opened_at", "closed_at")
    return list(JournalFile.objects.order_by("pk").values(*names))


def waiting_up_to(key: str, up_to: int = 2**62) -> tuple[int, int]:
    """How many entries of a key with ids up to `up_to` wait, and the highest id among them."""
    [(count, highest)] = db.run(_REST, {"key": key, "up_to": up_to}, patience=5.0)
    return int(count), int(highest or 0)


# ----------------------------------------------------------------------------------------------------- verifying


@dataclass(frozen=True)
class Finding:
    """The result of verifying one file. elsewhere: the file is on another machine. problems: empty if it is correct.

    unacknowledged: bytes beyond the acknowledged length, of a flush under way or of a writer that died.
    """

    path: str
    host: str
    entries: int
    length: int
    problems: list[str]
    elsewhere: bool = False
    unacknowledged: int = 0


@dataclass(frozen=True)
class _File:
    id: int
    key: str
    path: str
    host: str
    columns: Any
    length: int
    entries: int
    rows: int  # the entries whose rows name this file
    old: bool  # its entries' rows may have been deleted since

    @property
    def header(self) -> list[str]:
        return [*csv_format.OWN_COLUMNS, *map(csv_format.guarded, self.columns)]


def verify(key: str | None = None) -> Iterator[Finding]:
    """Read each file (of this key) up to its acknowledged length and compare it with the rows.

    Checked in every file: the header of its columns, whole lines, the acknowledged number of lines, no event twice, and
    exactly the events whose rows name this file. A flush under way does no harm: only acknowledged bytes are read.
    """
    for row in db.run(_FILES, {"key": key, "keep": conf.get().journal_keep}):
        file = _File(*row)
        path = conf.get().journal_dir / file.path
        facts: dict[str, Any] = {"path": file.path, "host": file.host, "entries": file.entries, "length": file.length}
        if file.host != host() and not path.exists():
            yield Finding(**facts, problems=[], elsewhere=True)
            continue
        try:
            problems = list(_problems(file, path))
            beyond = path.stat().st_size - file.length if path.exists() else 0
        except OSError as problem:
            yield Finding(**facts, problems=[str(problem)])
        else:
            yield Finding(**facts, problems=problems, unacknowledged=max(beyond, 0))


def _problems(file: _File, path: Path) -> Iterator[str]:
    if not file.length:
        if file.entries or file.rows:
            yield "entries are acknowledged in an empty file"
        return
    with path.open("rb") as opened:
        content = opened.read(file.length)
    if len(content) < file.length:
        yield f"{file.length} bytes are acknowledged and {len(content)} are there"
        return
    if not content.endswith(csv_format.LINE_END.encode()):
        yield "the last line is torn"
    events: list[str] = []
    try:
        for number, line in enumerate(csv_format.parse(io.TextIOWrapper(io.BytesIO(content), "utf-8", newline="")), start=1):
            if number == 1:
                if line != file.header:
                    yield "the header is another one"
            elif len(line) != len(file.header):
                yield f"line {number} has {len(line)} cells, the header {len(file.header)}"
            else:
                events.append(csv_format.unguarded(line[0]))
    except (csv.Error, UnicodeDecodeError) as problem:
        yield f"cannot be read: {problem}"
    yield from _compare(file, events)


def _compare(file: _File, events: list[str]) -> Iterator[str]:
    different = set(events)
    if len(different) < len(events):
        yield f"{len(events) - len(different)} events stand in it twice"
    if len(events) != file.entries:
        yield f"{file.entries} entries are acknowledged and {len(events)} are there"
    if not file.old and file.rows != len(different):
        yield f"{file.rows} rows say that they are in it, {len(different)} are"
    rest = iter(events)
    while chunk := list(islice(rest, CHUNK)):
        owner = dict(db.run(_OF_EVENTS, {"ids": chunk}))
        for event in chunk:
            if owner.get(event, file.id) != file.id:
                yield f"event {event} belongs to another file"
            elif event not in owner and not file.old:
                yield f"event {event} was never acknowledged"
