"""Background work of a process: a function that a separate thread calls again and again until it is stopped."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from django.db import connection

log = logging.getLogger(__name__)


class Loop:
    """Calls `work` every so many seconds until `stop`, then `at_end` once. Errors are logged, and the loop goes on."""

    def __init__(self, name: str, every: float, work: Callable[[], object], at_end: Callable[[], object] | None = None) -> None:
        self._name, self._every, self._work, self._at_end = name, every, work, at_end
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> Loop:
        """Start the thread."""
        self._thread.start()
        return self

    def stop(self, seconds: float) -> bool:
        """Ask it to end and wait for that; false when it is still busy after so many seconds."""
        self._stop.set()
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stop.wait(self._every):
            self._try(self._work)
        if self._at_end is not None:
            self._try(self._at_end)
        connection.close()

    def _try(self, work: Callable[[], object]) -> None:
        try:
            work()
        except Exception as error:
            log.warning("%s: %s: %s; trying again", self._name, type(error).__name__, error)
            connection.close()
