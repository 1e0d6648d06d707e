"""Beat's scheduler: django-celery-beat's, made to outlive outages of the database and of the broker.

Celery's beat keeps one producer for its whole life and leaves mending it to `task_publish_retry`, which is off here:
after one lost connection it would go on "sending" for ever into nothing, and nobody would sweep. And it ends when the
database is away at the moment when it reads its timetable, and never ends when it is told to in the middle of a statement.
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

from celery.beat import SchedulingError
from django.db import connection
from django_celery_beat.schedulers import DatabaseScheduler
from psycopg.pq import TransactionStatus

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

    def sync(self) -> None:
        """Write down what was sent when, unless this is a signal's handler that broke into one of our own statements.

        Celery calls this from its SIGTERM handler, in the thread that may hold the connection's lock: it would wait for itself
        for ever. What is left out is written a moment later, when beat's loop has unwound.
        """
        psycopg = connection.connection
        if psycopg is not None and psycopg.lock.locked():
            return
        if psycopg is not None and psycopg.info.transaction_status == TransactionStatus.ACTIVE:
            connection.close()  # the statement that was broken into is still on its way
        super().sync()

    def _connect_anew(self) -> None:
        """Forget what beat keeps; it is made again when it is asked for."""
        self.__dict__.pop("producer", None)
        broken = self.__dict__.pop("connection", None)
        if broken is not None:
            with suppress(Exception):  # it is broken: that is why it goes
                broken.release()
