"""Without load an order needs no message: an idle agents process consumes it and performs its steps itself.

A scheduler that hears of a new order lets such a process go first, for COURTESY_SECONDS. If no agents process has taken the
order by then, because all are busy or there is none, the scheduler consumes it, and does not wait again for a while. Under
load the agents are never idle, the scheduler's batches grow, and chains of messages carry them.
"""

from __future__ import annotations

import time

from supervision import conf
from supervision.dispatch import scheduler
from supervision.execution import runner
from supervision.intake import consuming
from supervision.workflow import workflows

COURTESY_SECONDS = 0.004
FIRST_HASTE_SECONDS = 0.25
LONGEST_HASTE_SECONDS = 8.0


def is_for(served: set[str]) -> bool:
    """Whether a worker that serves these queues takes new orders up: it serves the first agent of a workflow."""
    return conf.get().idle_agents_consume and any(workflow.agent(0).queue in served for workflow in workflows())


def take_up() -> None:
    """Turn waiting submissions into runs and perform them, if this process has had nothing to do for a while."""
    if scheduler.stopping.is_set() or not runner.is_idle(conf.get().hold_off_seconds):
        return
    batch = consuming.consume_batch(performs=runner.performs)
    scheduler.hand_out(batch.born)
    for place, started in batch.begun.items():
        runner.go_on(place, started)


def take_up_or_consume() -> None:
    """For a process that is agents and scheduler in one: perform what it can at once, and dispatch the rest."""
    take_up()
    scheduler.consume()


class Courtesy:
    """What a scheduler does when it hears of a new order."""

    def __init__(self) -> None:
        self._hurried_until = 0.0
        self._haste = 0.0

    def consume(self) -> None:
        """Let idle agents go first, then take what is left."""
        waited = not scheduler.is_consuming() and time.monotonic() >= self._hurried_until
        if waited:
            time.sleep(COURTESY_SECONDS)
        found = scheduler.consume()
        if waited and found:
            self._haste = min(max(2 * self._haste, FIRST_HASTE_SECONDS), LONGEST_HASTE_SECONDS)
            self._hurried_until = time.monotonic() + self._haste
        elif waited:
            self._haste = 0.0
