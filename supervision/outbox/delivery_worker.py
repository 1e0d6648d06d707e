"""Delivers the outbox on threads of every process of the supervisor's role, so that no other work waits for a receiver.

There are two independent lanes: notifications (mails, one by one) and status messages (`status_sender`). The database sends a
NOTIFY for new rows in the outbox; a lost one costs seconds.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import Any

import psycopg
from celery import signals
from django.db import connection

from supervision.outbox import notifications
from supervision.outbox.status_sender import Sending
from supervision.store import hooks

log = logging.getLogger(__name__)

CHANNEL = "supervision_outbox"
POLL_SECONDS = 5.0
STOP_SECONDS = 12.0  # a little longer than one delivery attempt takes

_KEPT = ("dbname", "user", "password", "host", "port", "sslmode", "sslrootcert", "sslcert", "sslkey", "service")


class Courier:
    """The delivery threads of one process."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._mail = threading.Event()
        self._sending = Sending()
        self._threads = {
            name: threading.Thread(target=self._keep_at, args=(name, work, goes_on), name=name, daemon=True)
            for name, work, goes_on in (
                ("outbox", self._tell, self._is_open),
                ("deliveries", self._sending.turn, self._has_work),
                ("outbox-ear", self._listen, self._is_open),
            )
        }

    def start(self) -> Courier:
        """Start the threads."""
        for thread in self._threads.values():
            thread.start()
        return self

    def wake(self) -> None:
        """Make the threads look for due messages now."""
        self._mail.set()
        self._sending.wake()

    def stop(self) -> None:
        """Start no more deliveries."""
        self._sending.stopping = True
        self._ended.set()
        self.wake()

    def join(self, seconds: float) -> bool:
        """Wait until the results of running deliveries are written, for at most `seconds`. False if they are not."""
        self._threads["deliveries"].join(seconds)
        return not self._threads["deliveries"].is_alive()

    def _is_open(self) -> bool:
        return not self._ended.is_set()

    def _has_work(self) -> bool:
        return not self._ended.is_set() or self._sending.busy

    def _keep_at(self, name: str, work: Callable[[], object], goes_on: Callable[[], bool]) -> None:
        while goes_on():
            try:
                work()
            except Exception as error:
                log.warning("%s: %s: %s; trying again", name, type(error).__name__, error)
                connection.close()
                self._ended.wait(1.0)
        connection.close()

    def _tell(self) -> None:
        self._mail.wait(POLL_SECONDS)
        self._mail.clear()
        while self._is_open() and (notifications.deliver_due() or hooks.retry_due()):
            pass

    def _listen(self) -> None:
        params: dict[str, Any] = {name: value for name, value in connection.get_connection_params().items() if name in _KEPT}
        with psycopg.connect(autocommit=True, **params) as ear:
            ear.execute(f"LISTEN {CHANNEL}")
            self.wake()  # for rows that were announced before this LISTEN
            while self._is_open():
                for note in ear.notifies(timeout=1.0, stop_after=1):
                    if note.payload == "status":
                        self._sending.wake()
                    else:
                        self._mail.set()


_courier: tuple[int, Courier] | None = None
_lock = threading.Lock()


def wake() -> None:
    """Start this process's delivery threads if they do not run yet, and wake them. Never waits."""
    global _courier
    with _lock:
        if _courier is None or _courier[0] != os.getpid():
            _courier = os.getpid(), Courier().start()
        _courier[1].wake()


def stop(seconds: float) -> None:
    """Start no more deliveries, and wait for the running ones for at most `seconds`."""
    global _courier
    with _lock:
        mine, _courier = _courier, None
    if mine is not None and mine[0] == os.getpid():
        mine[1].stop()
        mine[1].join(seconds)


@signals.worker_ready.connect
def begin(sender: Any, **_facts: Any) -> None:
    """A worker of the supervisor's role delivers messages from its start."""
    if "supervisor" in sender.app.amqp.queues.consume_from:
        wake()


@signals.worker_shutting_down.connect
def begin_nothing(**_facts: Any) -> None:
    """SIGTERM: running deliveries finish, no other one is started."""
    if _courier is not None and _courier[0] == os.getpid():
        _courier[1].stop()


@signals.worker_shutdown.connect
def wait_for_the_end(**_facts: Any) -> None:
    """Wait until the results of the last deliveries are written."""
    stop(STOP_SECONDS)
