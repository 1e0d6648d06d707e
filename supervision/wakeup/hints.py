"""Hints: messages that say "there is work" and nothing else. A lost one costs latency; the relay sends it again.

A hint goes out at once; while more follow, at most one per HINT_SECONDS and process is sent. A separate thread publishes,
so that no request and no transaction ever waits for the broker. For a new submission it first sends a NOTIFY (`notify`).
If this process has sent none for a while, the statement that accepts the submission notifies itself (`announces`).
The message follows only if a submission still waits a moment later, because no scheduler listened or all are busy.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections.abc import Callable
from functools import partial

from celery import current_app
from django.db import connection, transaction

from supervision import conf
from supervision.telemetry import measures
from supervision.wakeup import notify

log = logging.getLogger(__name__)

CONSUME = "supervision.consume"
SCHEDULE = "supervision.schedule"
DELIVER = "supervision.deliver"
ARCHIVE = "supervision.archive"
JOBS = "supervision.jobs"
UNANSWERED_SECONDS = 0.05
QUEUES = {CONSUME: "submissions", SCHEDULE: "scheduler", DELIVER: "supervisor", ARCHIVE: "supervisor", JOBS: "supervisor"}


class _Hinter:
    """One process's hints to one queue: the first is sent at once, those that follow soon are coalesced."""

    def __init__(self, task: str) -> None:
        self._task = task
        self._notifies = task == CONSUME and notify.is_heard()
        self._notified_at: float | None = None  # when the NOTIFY was sent that no message has followed yet
        self._announced = False  # whether the present wish was notified with a commit
        self.is_quiet = False  # whether nothing was wanted for as long as hints are held back
        self._wanted = threading.Event()
        self._idle = threading.Event()
        self._idle.set()
        threading.Thread(target=self._loop, name=f"hints-{task}", daemon=True).start()

    @property
    def announces(self) -> bool:
        return self._notifies and self.is_quiet and not self._wanted.is_set()

    def want(self, *, announced: bool = False) -> None:
        if self._wanted.is_set():
            return
        self._idle.clear()
        self._announced = announced
        self._wanted.set()

    def _loop(self) -> None:
        pause = 0.0
        tell: Callable[[], object] = self._notify if self._notifies else partial(publish, self._task)
        while True:
            self.is_quiet = True
            wanted = self._wanted.wait(None if self._notified_at is None else UNANSWERED_SECONDS)
            self.is_quiet = False
            if wanted:
                self._wanted.clear()
                tell()
            if self._notified_at is not None and time.monotonic() - self._notified_at >= UNANSWERED_SECONDS:
                self._notified_at = None
                if notify.is_unanswered(UNANSWERED_SECONDS / 2):
                    publish(self._task)
            if not self._wanted.is_set() and self._notified_at is None:
                self._idle.set()
            # While hints follow each other without a gap, their reader is at work anyway: fewer and fewer are sent.
            shortest = conf.get().hint_seconds
            pause = min(max(shortest, 2 * pause), 8 * shortest)
            time.sleep(pause)
            if not self._wanted.is_set():
                pause = 0.0

    def _notify(self) -> None:
        if not self._announced:
            notify.send()
        self._announced = False
        if self._notified_at is None:
            self._notified_at = time.monotonic()

    def drain(self, seconds: float) -> bool:
        return self._idle.wait(seconds)


_hinters: dict[tuple[int, str], _Hinter] = {}
_lock = threading.Lock()
enabled = True  # tests that run the engine in one thread switch hints off


def publish(task: str) -> bool:
    """Send one hint now, on this thread. False when the broker could not be reached; the relay sends it again."""
    if not enabled:
        return False
    try:
        current_app.send_task(task, queue=QUEUES[task], ignore_result=True, retry=False)
    except Exception as error:
        measures.UNSENT.add("hint")
        log.warning("could not send the hint %s: %s", task, error)
        return False
    return True


def send(task: str) -> None:
    """Request a hint for `task` soon (after the caller's transaction, if it is in one), without waiting for the broker."""
    if not enabled:
        return
    if connection.in_atomic_block:
        transaction.on_commit(partial(send, task))
        return
    _hinter(task).want()


def announces(task: str) -> bool:
    """Whether a commit that is about to be made should send this hint's NOTIFY itself, because none was sent for a while."""
    return enabled and not connection.in_atomic_block and _hinter(task).announces


def announced(task: str) -> None:
    """Say that the commit has sent the NOTIFY. A message follows if there is no answer."""
    _hinter(task).want(announced=True)


def _hinter(task: str) -> _Hinter:
    key = (os.getpid(), task)
    hinter = _hinters.get(key)
    if hinter is None:
        with _lock:
            hinter = _hinters.get(key) or _hinters.setdefault(key, _Hinter(task))
    return hinter


def flush(seconds: float = 2.0) -> None:
    """Wait until the hints asked for in this process are out, at most `seconds`; commands call it before they end."""
    for (pid, _), hinter in list(_hinters.items()):
        if pid == os.getpid():
            hinter.drain(seconds)


atexit.register(flush)
