"""The scheduler without Celery beat: consume waiting submissions, claim due steps, dispatch them."""

from __future__ import annotations

from collections.abc import Mapping

from supervision.dispatch import scheduler
from supervision.management.base import LoopCommand, report_of


class Command(LoopCommand):
    """One pass with --once, else a loop."""

    role = "scheduler"
    help = (
        "Consume waiting submissions, then claim due steps within capacity and dispatch them. Prints one JSON "
        "object per pass: consumed, dead_letters, claimed, dispatched. Any number may run at once; the loop "
        "is a scheduler of its own where no Celery beat runs."
    )

    def one_pass(self) -> Mapping[str, int]:
        return report_of(scheduler.schedule_once(), ("consumed", "dead_letters", "claimed", "dispatched"))
