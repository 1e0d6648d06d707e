"""The intake's consumer: a thread with a connection of its own, so that a commit blocks no event loop."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from amqp.exceptions import AMQPError
from django.db import connection
from kombu.entity import Queue
from kombu.messaging import Consumer

from supervision.intake import amqp
from supervision.intake.amqp import DEAD, NAME, NOT_ITS_FAULT, take
from supervision.runtime.periodic import PeriodicLoop
from supervision.transports import topology

log = logging.getLogger(__name__)

BATCH = 200
LINGER_SECONDS = 0.02  # how long a batch that has begun waits for more
IDLE_SECONDS = 1.0  # how long it waits for a message before it checks whether it has to stop
PAUSE_SECONDS = 1.0

_TO_DEAD = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": DEAD}
_QUORUM = {"x-queue-type": "quorum", "x-delivery-limit": 20}
# Queue arguments, the preferred ones first; older or other brokers may accept only the later ones.
SHAPES: tuple[dict[str, Any], ...] = (
    {**_QUORUM, **_TO_DEAD, "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"},
    {**_QUORUM, **_TO_DEAD},
    _TO_DEAD,
)
DEAD_SHAPES: tuple[dict[str, Any], ...] = ({"x-queue-type": "quorum", "x-delivery-limit": -1}, {"x-queue-type": "quorum"}, {})


class Intake(PeriodicLoop):
    """Consumes the queue on a connection of its own, through every outage of broker and database, until it is stopped."""

    def __init__(self, app: Any) -> None:
        super().__init__("intake", PAUSE_SECONDS, self._consume, at_once=True)
        self._app = app
        self._arrived: list[Any] = []

    def _consume(self) -> None:
        self._arrived = []  # the broker redelivers the messages of a lost connection
        with self._app.connection_for_read(heartbeat=self._app.conf.broker_heartbeat) as broker:
            broker.connect()
            queues = declare(broker)
            channel = broker.channel()
            channel.basic_qos(0, BATCH, False)
            come = self._arrived.append
            with Consumer(channel, queues, on_message=come, on_decode_error=lambda message, _: come(message), auto_declare=False):
                log.info("the intake consumes %s", NAME)
                while not self.stopping.is_set():
                    self._gather(broker)
                    while self._arrived and not self._take():
                        if self.stopping.is_set():
                            return
                        self._drain(broker, PAUSE_SECONDS)  # keeps the connection and its unacknowledged messages alive
                        time.sleep(PAUSE_SECONDS / 10)

    def _gather(self, broker: Any) -> None:
        self._drain(broker, IDLE_SECONDS)
        until = time.monotonic() + LINGER_SECONDS
        while self._arrived and len(self._arrived) < BATCH and time.monotonic() < until:
            self._drain(broker, LINGER_SECONDS)

    def _drain(self, broker: Any, seconds: float) -> None:
        with suppress(TimeoutError):
            broker.drain_events(timeout=seconds)
        if broker.heartbeat:
            broker.heartbeat_check()

    def _take(self) -> bool:
        """Commit and acknowledge the messages that have arrived; False when they have to wait."""
        batch = self._arrived[:BATCH]

        def done(message: Any) -> None:
            message.ack()
            self._arrived.remove(message)

        try:
            take(batch, done)
        except NOT_ITS_FAULT as error:
            log.warning("%d messages of the intake wait for the database: %s", len(batch), str(error).strip().splitlines()[:1])
            connection.close()
            return False
        return True


def declare(broker: Any, *, declares: bool | None = None) -> list[Queue]:
    """Declare the intake's queues, its exchange and its binding, as far as this user may. Returns the queues.

    declares: None for what the setting says. Raises the broker's error if a queue is missing and cannot be declared.
    """
    makes = topology.may_declare() if declares is None else declares
    queues = [declared(broker, NAME, SHAPES if makes else ()), declared(broker, DEAD, DEAD_SHAPES if makes else ())]
    if not makes:
        return queues
    with broker.channel() as channel:
        try:
            topology.declare_intake_exchange(channel)
            queues[0](channel).bind_to(topology.INTAKE, topology.INTAKE_KEY)
        except AMQPError as error:
            log.warning("the exchange %s is used as it is, because it cannot be declared: %s", topology.INTAKE, error)
    return queues


def declared(broker: Any, name: str, shapes: Sequence[dict[str, Any]]) -> Queue:
    """Declare the queue with the first of these shapes that the broker accepts; otherwise use the existing queue as it is."""
    for arguments in shapes:
        queue = Queue(name, durable=True, queue_arguments=arguments, no_declare=False)
        with broker.channel() as channel:
            try:
                queue(channel).queue_declare()
            except AMQPError as error:
                log.info("the broker does not make %s with %s: %s", name, arguments, error)
            else:
                return queue
    queue = Queue(name)
    with broker.channel() as channel:
        try:
            queue(channel).queue_declare(passive=True)
        except AMQPError:
            log.error("the queue %s is missing, and this process may not declare it: run %s", name, topology.COMMAND)  # noqa: TRY400
            raise
    return queue


_running: Intake | None = None


def start(app: Any) -> None:
    """Begin to consume in this process, if the application has registered a reader and the broker speaks AMQP."""
    global _running
    if not amqp.has_reader() or app.connection_for_read().transport.driver_type != "amqp":
        return
    _running = Intake(app)
    _running.start()


def stop() -> None:
    """Finish the current batch and take no more messages."""
    if _running is not None:
        _running.ask_to_stop()


def finish(seconds: float) -> None:
    """Wait until the current batch is done."""
    if _running is not None:
        _running.stop(seconds)
