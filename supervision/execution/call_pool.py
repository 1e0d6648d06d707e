"""Agents' calls run concurrently on a bounded thread pool and are reported in batches.

Bookkeeping costs about a microsecond per call, because it needs no Future. One thread makes the calls of a quick agent; all
threads of the pool share those of a slow one. The engine uses no database on these threads: one writer collects checkpoints.
An agent may. A connection that was lost since its thread's last calls is replaced before the next ones.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from supervision.postgres import db

Call = Callable[[Any], None]
QUICK_SECONDS = 0.0005  # an agent that answers faster than this is not worth a second thread


class CallPool:
    """At most `size` calls at once. `run` returns immediately; each call reports for itself."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._jobs: queue.SimpleQueue[tuple[Call, deque[Any], str]] = queue.SimpleQueue()
        self._pace: dict[str, float] = {}
        self._waiting = 0
        self._open = 0  # jobs queued or being worked on; a job is one thread's share of a cohort
        self._room = threading.Condition()
        self._threads = 0

    def is_quick(self, kind: str) -> bool:
        """Whether calls of this kind have lately been too short to share out."""
        return self._pace.get(kind, 1.0) < QUICK_SECONDS

    def forget(self) -> None:
        """Forget how quick each kind of call was."""
        self._pace.clear()

    def is_idle(self) -> bool:
        """Whether no call is running or waiting."""
        return not self._waiting

    def run(self, call: Call, items: Sequence[Any], kind: str) -> deque[Any]:
        """Call `call(item)` for each item, side by side; blocks only while the pool is more than full."""
        with self._room:
            while self._waiting > 2 * self.size:
                self._room.wait()
            self._waiting += len(items)
        todo = deque(items)
        self.help(call, todo, kind, 1 if self.is_quick(kind) else len(items))
        return todo

    def wait_for_room(self) -> int:
        """Wait until at least one more call could begin at once. Returns how many could."""
        with self._room:
            while self._waiting >= self.size:
                self._room.wait()
            return self.size - self._waiting

    def help(self, call: Call, todo: deque[Any], kind: str, threads: int) -> None:
        """Put more threads to work on the same items."""
        wanted = min(self.size, threads)
        with self._room:
            self._open += wanted  # one thread for each open job, because a busy thread may stay busy for long
            missing = min(self.size, self._open) - self._threads
            for _ in range(max(0, missing)):
                self._threads += 1
                threading.Thread(target=self._loop, name=f"agent-call-{self._threads}", daemon=True).start()
        for _ in range(wanted):
            self._jobs.put((call, todo, kind))

    def wait_until_idle(self, seconds: float) -> bool:
        """Wait for running and waiting calls to end, for at most `seconds`. False if some have not ended."""
        until = time.monotonic() + seconds
        with self._room:
            while self._waiting and (left := until - time.monotonic()) > 0:
                self._room.wait(left)
            return not self._waiting

    def _loop(self) -> None:
        while True:
            call, todo, kind = self._jobs.get()
            db.drop_lost_connections()
            done, pace = 0, float("inf")
            while True:
                try:
                    item = todo.popleft()
                except IndexError:
                    break
                began = time.perf_counter()
                try:
                    call(item)
                finally:
                    done += 1
                    # The quickest call counts: the others may include time in which another thread held the GIL.
                    pace = min(pace, time.perf_counter() - began)
                    with self._room:
                        self._waiting -= 1
                        self._room.notify_all()
            with self._room:
                self._open -= 1
            if not done:
                continue
            self._pace[kind] = 0.7 * self._pace.get(kind, pace) + 0.3 * pace


class Gathering:
    """Collects the results of one cohort. The cohort's thread takes those that come in time; later ones go to `late`."""

    def __init__(self, expected: int, late: Callable[[Any], None]) -> None:
        self._late = late
        self._lock = threading.Lock()
        self._news = threading.Event()
        self._results: list[Any] = []
        self._missing = expected
        self._closed = False

    def report(self, result: Any) -> None:
        """Called by the pool's threads, once per call."""
        with self._lock:
            if not self._closed:
                self._results.append(result)
                self._missing -= 1
                if len(self._results) == 1 or not self._missing:
                    self._news.set()
                return
        self._late(result)

    def take(self, *, patience: float, linger: float) -> list[Any]:
        """Wait up to `patience` for the first result, then up to `linger` for the others; then close."""
        self._news.wait(patience)
        if self._missing and self._results:
            until = time.monotonic() + linger
            while self._missing and (left := until - time.monotonic()) > 0:
                self._news.clear()
                if not self._missing:
                    break
                self._news.wait(left)
        with self._lock:
            self._closed = True
            return self._results
