"""Finds a process of agents whose threads are all held by calls that never return: a call without a timeout, for example.

Python ends no thread. The steps of such calls expire and are taken up anew, but each new attempt here needs a thread, too. Once
calls hold all threads, the process begins no further call, and with `work all` no other task either: its tasks wait for a thread.

Once the time of each of these calls is over, and none of them returns for the time of HELD_ROUNDS rounds of canaries, the process
ends itself. Its process manager starts it again, and its claims expire. A call that returns, in time or late, starts the wait
anew; so does a process that was frozen.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from supervision.agent import StepRequest
from supervision.execution.agents_process import AgentsProcess
from supervision.runtime.periodic import PeriodicLoop
from supervision.worker.consumption_check import EXIT_CODE, every

log = logging.getLogger(__name__)

HELD_ROUNDS = 6.0  # a minute


class Watch:
    """Whether the same calls have held all threads of this process for too long."""

    def __init__(self, process: AgentsProcess) -> None:
        self._process = process
        self._calls: Sequence[StepRequest] = ()
        self._since = self._looked = time.monotonic()

    def held(self) -> Sequence[StepRequest]:
        """The calls that have held all threads for HELD_ROUNDS after their time; none as long as one thread is free, or was."""
        now = time.monotonic()
        calls = self._process.overdue_in_all_threads(now)
        frozen, self._looked = now - self._looked > 1.5 * every(), now
        if frozen or list(map(id, calls)) != list(map(id, self._calls)):
            self._calls, self._since = calls, now
        return self._calls if self._calls and now - self._since >= HELD_ROUNDS * every() else ()


def keep_watching(process: AgentsProcess, end: Callable[[int], Any] = os._exit) -> PeriodicLoop:
    """Watch the calls of this process on a thread of its own, and end the process when none of them returns."""
    watch = Watch(process)

    def check() -> None:
        if calls := watch.held():
            steps = ", ".join(sorted({call.step for call in calls}))
            log.critical(
                "all %d threads are held by calls whose time has long been over (steps: %s): this process ends, to be started"
                " again. Give each call of an agent a timeout: request.remaining",
                len(calls),
                steps,
            )
            end(EXIT_CODE)

    return PeriodicLoop("held threads", every() / 2, check).start()
