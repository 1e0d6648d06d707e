"""Beat's scheduler: django-celery-beat's, made to outlive outages of the database and of the broker.

Celery's beat keeps one producer for its whole life and leaves mending it to `task_publish_retry`, which is off here:
after one lost connection it would go on "sending" for ever into nothing, and nobody would sweep. And it ends when the
database is away at the moment when it reads its timetable.
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

from celery.beat import SchedulingError
from django_celery_beat.schedulers import DatabaseScheduler

from supervision import db


class Scheduler(DatabaseScheduler):
    """Each failure to send is followed by a new connection; the entry itself is due again at its next interval."""

    def apply_async(self, entry: Any, producer: Any = None, advance: bool = True, **options: Any) -> Any:
        """Send one entry's task. Raises SchedulingError, which beat logs."""
        try:
            return super().apply_async(entry, producer=producer, advance=advance, **options)
        except SchedulingError:
            self._connect_anew()
            raise

    def all_as_schedule(self) -> Any:
        """The timetable, as soon as the database answers."""
        return db.guarded(super().all_as_schedule, patience=math.inf)

    def _connect_anew(self) -> None:
        """Forget what beat keeps; it is made again when it is asked for."""
        self.__dict__.pop("producer", None)
        connection = self.__dict__.pop("connection", None)
        if connection is not None:
            with suppress(Exception):  # it is broken: that is why it goes
                connection.release()
