"""Delivers the outbox on threads of every process of the supervisor's role, so that no other work waits for a receiver.

There are five independent lanes: mails (one by one), urgent mails, notifications whose handlers call a service,
status messages (`status_sender`), and operators' channels, each on a thread of its own (`channels`). The database sends a NOTIFY
for new rows in the outbox; a lost one costs seconds.
"""

from __future__ import annotations

import os
import threading
import time
from functools import partial
from typing import Any

from celery import signals

from supervision.outbox import channels, notifications
from supervision.outbox.status_sender import Sending
from supervision.runtime.periodic import PeriodicLoop, listening
from supervision.store import hooks

CHANNEL = "supervision_outbox"
POLL_SECONDS = 5.0
STOP_SECONDS = 12.0  # a little longer than one delivery attempt takes


class DeliveryWorker:
    """The delivery threads of one process."""

    def __init__(self) -> None:
        self._sending = Sending()
        self._mails = PeriodicLoop("outbox", POLL_SECONDS, self._tell)
        self._soon = PeriodicLoop("outbox soon", POLL_SECONDS, partial(self._deliver, notifications.SOON))
        self._calls = PeriodicLoop("outbox calls", POLL_SECONDS, partial(self._deliver, notifications.CALLS))
        self._lane = channels.Lane()
        self._channels = PeriodicLoop("outbox channels", POLL_SECONDS, self._lane.turn, self._lane.drain)
        self._deliveries = PeriodicLoop("deliveries", 0.0, self._sending.turn, self._drain)
        self._listening = listening("outbox listener", CHANNEL, self._hear)
        self._senders = (self._deliveries, self._channels, self._mails, self._soon, self._calls)
        self._loops = (*self._senders, self._listening)

    def start(self) -> DeliveryWorker:
        """Start the threads."""
        for loop in self._loops:
            loop.start()
        return self

    def wake(self) -> None:
        """Make the threads look for due messages now."""
        self._wake_all()
        self._sending.wake()

    def stop(self) -> None:
        """Start no more deliveries."""
        self._sending.stopping = self._lane.stopping = True
        for loop in self._loops:
            loop.ask_to_stop()
        self._sending.wake()

    def join(self, seconds: float) -> bool:
        """Wait until the results of running deliveries are written, for at most `seconds`. False if they are not."""
        until = time.monotonic() + seconds
        ended = [loop.stop(max(0.1, until - time.monotonic())) for loop in self._senders]
        return all(ended)

    def _drain(self) -> None:
        while self._sending.busy:
            self._sending.turn()

    def _wake_all(self) -> None:
        for loop in (self._mails, self._soon, self._calls, self._channels):
            loop.wake()

    def _tell(self) -> None:
        while not self._mails.stopping.is_set() and notifications.deliver_due(lane=notifications.OTHERS) + hooks.retry_due():
            pass

    def _deliver(self, lane: str) -> None:
        while not self._mails.stopping.is_set() and notifications.deliver_due(lane=lane):
            pass

    def _hear(self, heard: list[str] | None) -> None:
        if heard is None or "status" in heard:
            self._sending.wake()
        if heard is None or set(heard) != {"status"}:
            self._wake_all()


_worker: tuple[int, DeliveryWorker] | None = None
_lock = threading.Lock()


def wake() -> None:
    """Start this process's delivery threads if they do not run yet, and wake them. Never waits."""
    global _worker
    with _lock:
        if _worker is None or _worker[0] != os.getpid():
            _worker = os.getpid(), DeliveryWorker().start()
        _worker[1].wake()


def stop(seconds: float) -> None:
    """Start no more deliveries, and wait for the running ones for at most `seconds`."""
    global _worker
    with _lock:
        mine, _worker = _worker, None
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
    if _worker is not None and _worker[0] == os.getpid():
        _worker[1].stop()


@signals.worker_shutdown.connect
def wait_for_the_end(**_facts: Any) -> None:
    """Wait until the results of the last deliveries are written."""
    stop(STOP_SECONDS)
