"""The journal's interface for applications: `append` events under a key, `wait` until one is on disk.

    journal.append("accounting", [("order.paid", f"{order}:paid", {"number": number, "total": "25.80"})])

An event is a row, inserted in the caller's transaction: it exists if and only if that commits, and no flush ever delays
it. Exactly one writer at a time appends a key's events to its files, one CSV file per event type (`writer`).
Callers keep no state and name a key, never a process or a machine.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

import psycopg
from django.db import connection

from supervision.journal.csv_format import is_name
from supervision.journal.statements import CHANNEL
from supervision.postgres import db
from supervision.postgres.listener import Listener

log = logging.getLogger(__name__)

POLL_SECONDS = 1.0  # the longest a caller of `wait` sleeps when a notification was lost

_encode = json.JSONEncoder(default=str).encode
Event = tuple[str, str, Mapping[str, Any]]  # event type, event id, body

# Bodies are sent in binary (%b): in text format, Python would escape every quotation mark of the array.
_APPEND = """
INSERT INTO supervision_journalentry (key, event_type, event_id, body)
SELECT %(key)s, event_type, event_id, body
  FROM unnest(%(types)s::text[], %(ids)s::text[], %(bodies)b::text[]) WITH ORDINALITY v(event_type, event_id, body, n)
 ORDER BY n
ON CONFLICT (event_id) DO NOTHING
RETURNING 1
"""
_OUTCOME = """
SELECT e.written_at, e.failed_at, e.error, f.path, f.host
  FROM supervision_journalentry e LEFT JOIN supervision_journalfile f ON f.id = e.file_id
 WHERE e.event_id = %(id)s
"""


class State(StrEnum):
    """The state of an event. Written and failed are final."""

    WRITTEN = "written"
    FAILED = "failed"
    WAITING = "waiting"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Outcome:
    """The outcome of one event. file: its path below JOURNAL_DIR, on `host`. reason: why it can never be written."""

    event_id: str
    state: State
    at: datetime | None = None
    file: str = ""
    host: str = ""
    reason: str = ""

    @property
    def settled(self) -> bool:
        """Whether the state is final."""
        return self.state is not State.WAITING


def append(key: str, events: Sequence[Event]) -> int:
    """Insert these events, in order, in the caller's transaction; returns how many were new.

    An event id that is already known is the same event and is left out. A body is a flat object; if it cannot be written to
    a file, only its event fails, when it is flushed, and never the caller. Raises ValueError for an invalid name or id.
    """
    if not events:
        return 0
    for name in {key, *(event_type for event_type, _, _ in events)}:
        if not is_name(name):
            raise ValueError(f"{name!r} is no key or event type: small letters, digits, dots, dashes and underscores")
    for _, event_id, _ in events:
        if not event_id or len(event_id) > 200 or not event_id.isprintable():
            raise ValueError(f"{event_id[:200]!r} is no event id: 1 to 200 printable characters")
    rows = db.run(
        _APPEND,
        {
            "key": key,
            "types": [event_type for event_type, _, _ in events],
            "ids": [event_id for _, event_id, _ in events],
            "bodies": [_text(body) for _, _, body in events],
        },
    )
    return len(rows)


def _text(body: Mapping[str, Any]) -> str:
    """The body as JSON in plain ASCII, which the database can always store; amounts and times as text."""
    try:
        return _encode(body)
    except (TypeError, ValueError, RecursionError) as problem:
        return json.dumps(f"it could not be turned into JSON ({problem})")


def outcome(event_id: str) -> Outcome:
    """The current outcome of this event."""
    rows = db.run(_OUTCOME, {"id": event_id})
    if not rows:
        return Outcome(event_id, State.UNKNOWN)
    written_at, failed_at, error, path, host = rows[0]
    if written_at is not None:
        return Outcome(event_id, State.WRITTEN, written_at, path or "", host or "")
    if failed_at is not None:
        return Outcome(event_id, State.FAILED, failed_at, reason=error)
    return Outcome(event_id, State.WAITING)


def wait(event_id: str, timeout: float) -> Outcome:
    """Wait up to so many seconds for this event to be written or refused; returns its outcome, WAITING when time was up.

    Writers notify of every flush. This function listens on a connection of its own; without one it polls the row once a
    second. Not for use in the transaction that appended the event: the writer sees the event only after its commit.
    """
    if connection.in_atomic_block:
        raise RuntimeError("wait() in a transaction would wait for its own end")
    until = time.monotonic() + timeout
    found = outcome(event_id)
    if found.settled or timeout <= 0:
        return found
    with contextlib.closing(Listener(CHANNEL)) as listener:
        while not (found := outcome(event_id)).settled and (left := until - time.monotonic()) > 0:
            try:
                listener.wait(min(left, POLL_SECONDS))
            except psycopg.Error as problem:
                log.info("cannot listen for flushes (%s), polling", problem)
                time.sleep(min(left, POLL_SECONDS))
    return found
