"""Writes the log behind the requests: a short queue in each process, and one statement a second while there is something to write.

No request waits for the log. If the queue is full, a request is left out and counted; the next row says how many are missing.
A process that ends in order writes what it has; one that is killed loses a second of its log.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable

from django.db import connection

from supervision import conf
from supervision.postgres import db
from supervision.requestlog.entries import Entry
from supervision.runtime.periodic import PeriodicLoop

MOST = 1_000  # requests that one process records in a second
EVERY_SECONDS = 1.0
LAST_SECONDS = 5.0  # for what is written when the process ends
PATIENCE_SECONDS = 2.0

_WRITE = """
INSERT INTO supervision_apirequest
       (at, request_id, method, path, status, kind, code, milliseconds, account_id, signed_in, key, order_key, missing)
SELECT now() - ago * interval '1 s', request_id, method, path, status, status / 100, code, ms, account, signed_in, key, order_key, 0
  FROM unnest(%(ago)s::float8[], %(ids)s::text[], %(methods)s::text[], %(paths)s::text[], %(statuses)s::smallint[], %(codes)s::text[],
              %(ms)s::float8[], %(accounts)s::bigint[], %(signed)s::text[], %(keys)s::text[], %(orders)s::text[])
       AS said(ago, request_id, method, path, status, code, ms, account, signed_in, key, order_key)
 UNION ALL
SELECT now(), '', '', '', 0, 0, '', 0, NULL, '', '', '', %(missing)s::int WHERE %(missing)s::int > 0
"""


class Recorder:
    """The queue of one process and the thread that writes it, which starts with the first request. most: the queue's length."""

    def __init__(self, most: int = MOST, *, after: Callable[[], object] = lambda: None) -> None:
        self._most, self._after = most, after
        self._lock = threading.Lock()
        self._entries: list[Entry] = []
        self._missing = 0
        self._loop: PeriodicLoop | None = None

    def add(self, entry: Entry) -> None:
        """Take one request. It never waits for the database."""
        with self._lock:
            if len(self._entries) >= self._most:
                self._missing += 1
            else:
                self._entries.append(entry)
            if self._loop is None:
                self._loop = PeriodicLoop("request log", EVERY_SECONDS, self._turn, self._turn).start()

    def _turn(self) -> None:
        try:
            self.write()
        finally:
            self._after()

    def write(self) -> int:
        """Write what waits, in one statement; returns how many requests it were. If it fails, they wait for the next call."""
        with self._lock:
            entries, missing = self._entries, self._missing
            self._entries, self._missing = [], 0
        if not entries and not missing:
            return 0
        try:
            self._insert(entries, missing)
        except BaseException:
            with self._lock:
                kept = (entries + self._entries)[: self._most]
                self._missing += missing + len(entries) + len(self._entries) - len(kept)
                self._entries = kept
            raise
        return len(entries)

    def _insert(self, entries: list[Entry], missing: int) -> None:
        now = time.monotonic()
        db.run(
            _WRITE,
            {
                "ago": [max(0.0, now - one.began) for one in entries],
                "ids": [one.request_id for one in entries],
                "methods": [one.method for one in entries],
                "paths": [one.path for one in entries],
                "statuses": [one.status for one in entries],
                "codes": [one.code for one in entries],
                "ms": [one.milliseconds for one in entries],
                "accounts": [one.account for one in entries],
                "signed": [one.signed_in for one in entries],
                "keys": [one.key for one in entries],
                "orders": [one.order for one in entries],
                "missing": missing,
            },
            patience=None,
        )

    def stop(self) -> None:
        """Write what waits and end the thread."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None:
            loop.stop(LAST_SECONDS)


# A pool of connections gets the thread's back after each turn.
_recorder = Recorder(after=lambda: connection.close())


def record(entry: Entry) -> None:
    """Write this request to the log, soon."""
    _recorder.add(entry)


def is_on() -> bool:
    """Whether requests are recorded (REQUEST_LOG_DAYS)."""
    return conf.get().keep_requests.total_seconds() > 0


def _forget() -> None:
    """In a forked process there is no thread that writes, and the parent writes its own requests."""
    global _recorder
    _recorder = Recorder(after=lambda: connection.close())


atexit.register(lambda: _recorder.stop())
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
