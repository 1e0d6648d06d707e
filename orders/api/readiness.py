"""Whether this process can accept an order: it writes to the database, and says what is wrong where that fails.

One statement writes a row. At most every ALLOCATE_SECONDS, for all processes together, a rolled-back transaction also lets a
table grow: a full disk refuses new pages while it still takes a change of an old one. One thread does this, and an answer is
kept for KEEP_SECONDS: probes never pile up.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as TooLate
from typing import Any

from django.db import Error, OperationalError, connection, transaction
from psycopg.errors import LockNotAvailable

from supervision.api import errors
from supervision.insight import queries
from supervision.postgres import db

KEEP_SECONDS = 1.0
WITHIN_SECONDS = 3.0
ALLOCATE_SECONDS = 5

_LIMITS = f"SELECT set_config('statement_timeout', '{int(WITHIN_SECONDS * 1000) - 500}ms', true), set_config('lock_timeout', '1s', true)"
# Where another process has written within the last second, this one need not.
_WRITE = """
INSERT INTO supervision_writeprobe AS p (id, written_at, allocated_at) VALUES (1, clock_timestamp(), now())
ON CONFLICT (id) DO UPDATE
   SET written_at = clock_timestamp(),
       allocated_at = CASE WHEN p.allocated_at < now() - %(every)s * interval '1 s' THEN now() ELSE p.allocated_at END
 WHERE p.written_at < now() - interval '1 s'
RETURNING p.allocated_at = now()
"""
_ALLOCATE = (
    "SELECT set_config('lock_timeout', '100ms', true)",
    "TRUNCATE supervision_writeprobepage",
    "INSERT INTO supervision_writeprobepage (filler) VALUES (repeat('x', 1000))",
)
_BACKLOG = """
SELECT count(*), coalesce(extract(epoch FROM now() - min(created_at)), 0)::float8
FROM supervision_submission WHERE consumed_at IS NULL
"""
_HEARTBEATS = "SELECT role, min(extract(epoch FROM now() - seen_at))::float8 FROM supervision_heartbeat GROUP BY role ORDER BY role"

_CAUSES = {
    "25006": "read-only",  # a standby, or a primary that takes no writes
    "53100": "disk full",
    "42501": "no right to write",
    "57014": "too slow",
    "55P03": "too slow",
    "42P01": "not migrated",
}
Answer = tuple[int, dict[str, Any]]


class Readiness:
    """The last answer of this process, and the thread that finds the next one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="readyz")
        self._looking: Future[Answer] | None = None
        self._reached = threading.Event()  # whether the server has answered a statement of this look
        self._known: tuple[float, Answer] | None = None

    def answer(self) -> Answer:
        """A status and a document, at most KEEP_SECONDS old, within WITHIN_SECONDS."""
        with self._lock:
            if self._known is not None and time.monotonic() - self._known[0] < KEEP_SECONDS:
                return self._known[1]
            if self._looking is None or self._looking.done():
                self._reached = threading.Event()
                self._looking = self._thread.submit(look, self._reached.set)
            looking, reached = self._looking, self._reached
        try:
            found = looking.result(WITHIN_SECONDS)
        except TooLate:
            if reached.is_set():
                found = unready("no answer", f"a write was not confirmed within {WITHIN_SECONDS:g} s: is a synchronous standby away?")
            else:  # a pooler keeps its clients waiting while the server is away
                found = unready("unreachable", f"no statement was answered within {WITHIN_SECONDS:g} s")
        with self._lock:
            self._known = (time.monotonic(), found)
        return found


def look(reached: Callable[[], object] = bool) -> Answer:
    """Write, and read the backlog. reached: called once the server has answered a statement."""
    try:
        with transaction.atomic():
            db.fetch(_LIMITS)
            reached()
            if db.fetch(_WRITE, {"every": ALLOCATE_SECONDS}) == [(True,)]:
                _allocate()  # if it fails, the row still says that it is due: the next look, of any process, tries again
        with transaction.atomic():
            db.fetch(_LIMITS)
            waiting, oldest = db.fetch(_BACKLOG)[0]
            heartbeats = dict(db.fetch(_HEARTBEATS))
            overdue = queries.overdue_count()
    except Error as problem:
        if hidden := errors.hidden_tables(problem):
            return unready("search path", hidden)
        state = getattr(problem.__cause__, "sqlstate", None)
        return unready(_CAUSES.get(state or "", "unreachable"), str(problem).strip().partition("\n")[0])
    finally:
        connection.close()
    backlog = {"submissions_waiting": waiting, "oldest_submission_seconds": oldest, "overdue_steps": overdue}
    return 200, {"status": "ok", "database": "ok", "backlog": backlog, "heartbeat_age_seconds": heartbeats}


def _allocate() -> None:
    try:
        with transaction.atomic():
            for statement in _ALLOCATE:
                db.fetch(statement)
            transaction.set_rollback(True)
    except OperationalError as problem:
        if not isinstance(problem.__cause__, LockNotAvailable):  # a backup reads the table: the next look tries again
            raise


def unready(database: str, detail: str) -> Answer:
    """503. database: the cause in a word or two. detail: what the server said."""
    return 503, {"status": "unavailable", "database": database, "detail": detail}


readiness = Readiness()
