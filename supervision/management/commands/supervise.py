"""The supervisor without Celery beat: find overdue steps and recover them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from supervision import conf, courier, heartbeats, journal_writer, plans, resource_cache, supervisor
from supervision.management.base import LoopCommand, report_of

JOURNAL_SECONDS = 5.0
FIGURES = ("overdue", "retried", "redispatched", "waiting", "compensating", "errors", "relayed")


class Command(LoopCommand):
    """One sweep with --once, else a loop."""

    help = (
        "Find steps whose complete-by has passed and recover them: retry, longer wait, undo, or Error with an "
        "alert; and send hints again for submissions that no scheduler consumed. Prints one JSON object per sweep: "
        f"{', '.join(FIGURES)}. Two at once are harmless. The loop also delivers notifications and status messages, writes "
        "the journal and refreshes cached results; its interval is SUPERVISION_SWEEP_SECONDS unless given."
    )

    @property
    def default_interval(self) -> float:  # type: ignore[override]
        return conf.get().sweep_every.total_seconds()

    def handle(self, *args: Any, **options: Any) -> None:
        if options["once"]:
            super().handle(*args, **options)
            return
        courier.wake()
        journal_writer.start()
        resource_cache.start()
        try:
            super().handle(*args, **options)
        finally:
            courier.stop(courier.STOP_SECONDS)
            journal_writer.stop(JOURNAL_SECONDS)
            resource_cache.stop(0.0)

    def one_pass(self) -> Mapping[str, int]:
        return report_of(supervisor.sweep_once(), FIGURES)

    def between_passes(self, report: Mapping[str, int]) -> None:
        heartbeats.beat("supervisor", {**report, "workflows": plans.told()})
        courier.wake()
