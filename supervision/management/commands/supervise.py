"""The supervisor without Celery beat: find overdue steps and recover them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from supervision import conf
from supervision.governance import response_cache
from supervision.jobs import working
from supervision.journal import writer
from supervision.management.base import LoopCommand, report_of
from supervision.outbox import delivery_worker
from supervision.postgres import db
from supervision.recovery import supervisor, upkeep
from supervision.runtime import periodic

log = logging.getLogger(__name__)

JOURNAL_SECONDS = 5.0
FIGURES = ("overdue", "retried", "redispatched", "waiting", "compensating", "errors", "relayed")


class Command(LoopCommand):
    """One sweep with --once, else a loop."""

    role = "supervisor"
    help = (
        "Find steps whose complete-by has passed and recover them: retry, longer wait, undo, or Error with an "
        "alert; and send hints again for submissions that no scheduler consumed. Prints one JSON object per sweep: "
        f"{', '.join(FIGURES)}. Two at once are harmless. The loop also delivers notifications and status messages, writes "
        "the journal, links the history, deletes what is over, sends hints for jobs again and refreshes cached results; its "
        "interval is SUPERVISION_SWEEP_SECONDS unless given. Without beat, cron has to run `archive` and `reconcile` each night."
    )

    @property
    def default_interval(self) -> float:  # type: ignore[override]
        return conf.get().sweep_every.total_seconds()

    def handle(self, *args: Any, **options: Any) -> None:
        if options["once"]:
            super().handle(*args, **options)
            return
        delivery_worker.wake()
        writer.start()
        response_cache.start()
        try:
            super().handle(*args, **options)
        finally:
            delivery_worker.stop(delivery_worker.STOP_SECONDS)
            writer.stop(JOURNAL_SECONDS)
            response_cache.stop(0.0)

    def one_pass(self) -> Mapping[str, int]:
        return report_of(supervisor.sweep_once(), FIGURES)

    def one_round(self) -> Mapping[str, int]:
        report: dict[str, int] = {}
        sweep, beat = (lambda: report.update(self.one_pass())), (lambda: self.beat(report))
        try:
            periodic.call_each([sweep, beat, upkeep.turn, working.relay, delivery_worker.wake])
        except Exception as error:
            if db.is_away(error):
                raise
            log.exception("a part of the supervisor's round failed")
        return report
