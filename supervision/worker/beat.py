"""Beat's scheduler: django-celery-beat's, changed to survive outages of the database and of the broker.

Celery's beat keeps one producer for its whole life. Only `task_publish_retry` repairs it, which is off here: after one
lost connection beat would lose all messages, and no sweep would run. Also, Celery's beat ends if the database is down
when it reads its schedule, or if the broker answers and refuses it (a password that was changed, a virtual host that was
deleted). And it never ends if SIGTERM interrupts one of its SQL statements.

Intervals that would end beat, or make it send without a rest, are bounded (`runtime.intervals`).
"""

from __future__ import annotations

import logging
import math
import time
from contextlib import suppress
from typing import Any

from celery.beat import SchedulingError
from django.db import DatabaseError, InterfaceError, connection
from django_celery_beat.schedulers import DatabaseScheduler, ModelEntry
from psycopg.pq import TransactionStatus

from supervision.postgres import db
from supervision.runtime.intervals import bounded

log = logging.getLogger(__name__)

REFUSED_SECONDS = 5.0  # from one try to the next, while the broker answers and refuses


class Entry(ModelEntry):
    """A periodic task with an interval within the bounds; the row keeps what it says. One that cannot be read stops no other."""

    def __init__(self, model: Any, app: Any = None) -> None:
        interval = model.interval
        if interval is not None:
            said = interval.every, interval.period
            interval.every, interval.period = bounded(*said)  # of this object only: an entry does not save it
            if said != (interval.every, interval.period):
                log.warning("%s: an interval of %d %s is not possible; it is sent %s", model.name, *said, interval)
        try:
            super().__init__(model, app=app)
        except (DatabaseError, InterfaceError):
            raise
        except Exception as problem:
            log.exception("beat does not send %r: its schedule cannot be read", model.name)
            raise ValueError(model.name) from problem  # `all_as_schedule` leaves it out


class Scheduler(DatabaseScheduler):
    """Opens a new connection after each failure to send. The entry is due again at its next interval."""

    Entry = Entry
    _waits = False

    def apply_async(self, entry: Any, producer: Any = None, advance: bool = True, **options: Any) -> Any:
        """Send one entry's task. Raises SchedulingError, which beat logs."""
        try:
            return super().apply_async(entry, producer=producer, advance=advance, **options)
        except SchedulingError:
            self._connect_anew()
            raise

    def all_as_schedule(self) -> Any:
        """The schedule. Waits until the database answers. Raises SystemExit if it is called in this wait, which SIGTERM ends.

        Celery's SIGTERM handler saves the times of the entries. For that it makes a second scheduler while the first one waits.
        """
        if Scheduler._waits:
            raise SystemExit(0)
        Scheduler._waits = True
        try:
            return db.guarded(super().all_as_schedule, patience=math.inf)
        finally:
            Scheduler._waits = False

    def sync(self) -> None:
        """Save when each entry was last sent, unless a signal handler calls this in the middle of an SQL statement.

        Celery calls this from its SIGTERM handler. The interrupted thread may hold the connection's lock, and would then wait
        for itself for ever. In that case Celery's next call, a moment later when beat's loop has ended, saves the times.
        """
        psycopg = connection.connection
        if psycopg is not None and psycopg.lock.locked():
            return
        if psycopg is not None and psycopg.info.transaction_status == TransactionStatus.ACTIVE:
            connection.close()  # the interrupted statement is still running on it
        super().sync()

    def _ensure_connected(self) -> Any:
        """The connection to the broker, once there is one. Celery itself waits for a broker that is away, not for one that refuses."""
        while True:
            try:
                return super()._ensure_connected()
            except Exception as problem:
                log.error("the broker refuses beat, which tries again in %.0f s: %s", REFUSED_SECONDS, problem)  # noqa: TRY400
            self._connect_anew()
            time.sleep(REFUSED_SECONDS)

    def _connect_anew(self) -> None:
        """Drop the cached producer and connection. Beat makes new ones at the next use."""
        self.__dict__.pop("producer", None)
        broken = self.__dict__.pop("connection", None)
        if broken is not None:
            with suppress(Exception):  # releasing a broken connection may fail
                broken.release()
