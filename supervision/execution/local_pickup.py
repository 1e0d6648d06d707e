"""Local pick-up: without load an idle agents process schedules a new order itself, and performs its steps without a message.

It runs the scheduler's own code: the same consumption, and the same dispatch for what it does not perform. The order's history
names the process in which it was scheduled. A scheduler that hears of a new order waits GRACE_SECONDS before it consumes. If it
then still finds the order, all agents processes are busy or none runs: it consumes at once from then on, for a while that
doubles each time (back-off). Under load no agents process is idle, the scheduler's batches grow, and chains carry them.

`LOCAL_PICKUP` switches it off: then only schedulers consume, without waiting, and every order travels as a chain.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from supervision import conf
from supervision.dispatch import scheduler
from supervision.execution import runner
from supervision.intake import consuming
from supervision.workflow import workflows

GRACE_SECONDS = 0.004
FIRST_BACKOFF_SECONDS = 0.25
LONGEST_BACKOFF_SECONDS = 8.0


def applies_to(served: Collection[str]) -> bool:
    """Whether a worker that serves these queues schedules new orders: it serves the first agent of a workflow."""
    return conf.get().local_pickup and any(workflow.agent(0).queue in served for workflow in workflows())


def schedule() -> None:
    """Turn waiting submissions into runs and perform them, if this process has had nothing to do for a while."""
    if scheduler.stopping.is_set() or not runner.process.is_idle(conf.get().hold_off_seconds):
        return
    batch = consuming.consume_batch(performs=runner.performs)
    scheduler.hand_out(batch.born)
    for place, started in batch.begun.items():
        runner.go_on(place, started)


def schedule_or_consume() -> None:
    """For a process that is agents and scheduler in one: perform what it can at once, and dispatch the rest."""
    schedule()
    scheduler.consume()


def of_scheduler() -> Callable[[], object]:
    """What a scheduler process does when it hears of a new order."""
    return _Grace().consume if conf.get().local_pickup else scheduler.consume


class _Grace:
    """Gives idle agents processes the time to schedule a new order, unless they left the last one to the scheduler."""

    def __init__(self) -> None:
        self._none_until = 0.0
        self._backoff = 0.0

    def consume(self) -> None:
        """Wait for the agents processes, then consume what is left."""
        waited = not scheduler.is_consuming() and time.monotonic() >= self._none_until
        if waited:
            time.sleep(GRACE_SECONDS)
        found = scheduler.consume()
        if waited and found:
            self._backoff = min(max(2 * self._backoff, FIRST_BACKOFF_SECONDS), LONGEST_BACKOFF_SECONDS)
            self._none_until = time.monotonic() + self._backoff
        elif waited:
            self._backoff = 0.0
