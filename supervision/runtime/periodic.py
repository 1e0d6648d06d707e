"""Background work of a process: a function that a thread of its own calls again and again until it is stopped."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable

from django.db import connection

from supervision.postgres import db
from supervision.postgres.listener import Listener

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 0.5  # after a failure
LONGEST_PAUSE_SECONDS = 10.0  # while all calls fail


class PeriodicLoop:
    """Calls `work` every so many seconds, and at once after `wake`, until it is stopped; then it calls `at_end` once.

    An exception is logged and the loop goes on. While calls fail, it pauses for longer and longer, and `wake` does not shorten
    these pauses. at_once: make the first call without a pause. interrupt: ends a call of `work` that waits.
    """

    def __init__(
        self,
        name: str,
        every: float,
        work: Callable[[], object],
        at_end: Callable[[], object] | None = None,
        *,
        at_once: bool = False,
        interrupt: Callable[[], object] | None = None,
    ) -> None:
        self._name, self._every, self._work, self._at_end = name, every, work, at_end
        self._at_once, self._interrupt = at_once, interrupt
        self.stopping = threading.Event()
        self._woken = threading.Event()
        self._thread = threading.Thread(target=self.run, name=name, daemon=True)

    def start(self) -> PeriodicLoop:
        """Start the thread."""
        self._thread.start()
        return self

    def wake(self) -> None:
        """Call `work` now, without the rest of the pause."""
        self._woken.set()

    def ask_to_stop(self) -> None:
        """Let the call under way be the last one, and do not wait for its end."""
        self.stopping.set()
        self._woken.set()
        if self._interrupt is not None:
            self._interrupt()

    def stop(self, seconds: float) -> bool:
        """Ask it to end and wait for that; false when it is still busy after so many seconds."""
        self.ask_to_stop()
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def run(self) -> None:
        """Work in the calling thread, until another thread or a signal stops it."""
        pause, failures = 0.0 if self._at_once else self._every, 0
        while not self.stopping.is_set():
            (self.stopping if failures else self._woken).wait(pause)
            self._woken.clear()
            if self.stopping.is_set():
                break
            began = time.monotonic()
            if self._succeeds(self._work):
                pause, failures = self._every, 0
                continue
            failures = 1 if time.monotonic() - began > LONGEST_PAUSE_SECONDS else min(failures + 1, 10)
            pause = max(self._every, min(FIRST_PAUSE_SECONDS * 2 ** (failures - 1), LONGEST_PAUSE_SECONDS))
        if self._at_end is not None:
            self._succeeds(self._at_end)
        connection.close()

    def _succeeds(self, work: Callable[[], object]) -> bool:
        try:
            work()
        except Exception as error:
            log.warning("%s: %s: %s; trying again", self._name, type(error).__name__, str(error).strip())
            connection.close()
            return False
        return True


def call_each(parts: Iterable[Callable[[], object]]) -> None:
    """Call each part, also where one before it raises. The first error is raised at the end; those after it are logged.

    Where the database is away, no further part is called: each of them would wait for it.
    """
    first: Exception | None = None
    for part in parts:
        try:
            part()
        except Exception as error:
            if first is None:
                first = error
            else:
                log.exception("another part failed, too")
            if db.is_away(error):
                break
    if first is not None:
        raise first


def listening(name: str, channel: str, hear: Callable[[list[str] | None], object]) -> PeriodicLoop:
    """A loop that calls `hear` with the payloads of every notification; None after it connected, for missed ones.

    If `hear` raises, the loop connects again and so calls it again: no wake-up is lost.
    """
    listener = Listener(channel)

    def work() -> None:
        heard = listener.wait(LONGEST_PAUSE_SECONDS)
        if heard != []:
            try:
                hear(heard)
            except Exception:
                listener.disconnect()
                raise

    return PeriodicLoop(name, 0.0, work, listener.close, interrupt=listener.interrupt)
