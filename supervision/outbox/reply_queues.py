"""Status messages in private reply queues: durable queues at the broker, declared where they are missing.

A message counts as delivered when the broker has taken it: RabbitMQ confirms it, Redis and PGMQ answer. The queue's reader
may be away for any length of time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from celery import current_app
from kombu.connection import Connection
from kombu.entity import Queue
from kombu.messaging import Producer
from kombu.transport import virtual

from supervision.transports import topology

QUEUE_PREFIX = "reply."


@dataclass(frozen=True)
class Reply:
    """One message for one queue."""

    queue: str
    message_id: str
    order: str
    event: str
    body: str


class Returned(Exception):
    """The broker could not put the message into the queue."""


def _connection() -> Connection:
    connection: Connection = current_app.connection_for_write()
    if connection.transport_cls in ("amqp", "amqps"):
        connection.transport_options = {**(connection.transport_options or {}), "confirm_publish": True, "read_timeout": 10}
    return connection


class Post:
    """One thread's connection to the broker, opened at first use and kept until an error."""

    def __init__(self) -> None:
        self._connection: Connection | None = None
        self._producer: Producer | None = None
        self._declared: set[str] = set()
        self._returned: list[str] = []

    def publish(self, reply: Reply) -> None:
        """Put one message into its queue. When this returns, the broker has it. Raises the broker's error, or Returned."""
        try:
            producer = self._open()
            queue = _queue(reply.queue)
            if reply.queue not in self._declared:
                queue.bind(producer.channel).declare()
                self._declared.add(reply.queue)
            self._returned.clear()
            producer.publish(
                reply.body,
                exchange=queue.exchange.name if queue.exchange else "",
                routing_key=reply.queue,
                mandatory=True,
                delivery_mode="persistent",
                content_type="application/json",
                content_encoding="utf-8",
                message_id=reply.message_id,
                correlation_id=reply.order,
                type=reply.event,
                headers={"webhook-id": reply.message_id},
                retry=False,
            )
        except Exception:
            self.close()
            raise
        if self._returned:
            self.close()  # the queue was deleted: the next try declares it again
            raise Returned(f"the queue {reply.queue} is gone")

    def reaches_the_broker(self) -> bool:
        """Whether there is a connection to the broker, or one can be opened now: then what has failed is a queue, not the broker."""
        try:
            self._open()
        except Exception:
            self.close()
            return False
        return True

    def _open(self) -> Producer:
        if self._producer is None:
            self._connection = _connection()
            self._connection.ensure_connection(max_retries=0, timeout=5)
            channel = self._connection.channel()
            self._producer = Producer(channel, auto_declare=False)
            if hasattr(channel, "events"):  # of the brokers, only RabbitMQ can return a message
                channel.events["basic_return"].add(self._note_return)
        return self._producer

    def _note_return(self, _exception: Any, _exchange: str, routing_key: str, _message: Any) -> None:
        self._returned.append(routing_key)

    def renew(self) -> None:
        """Call it before each batch: forget the declared queues, because they may have been deleted since the last one."""
        self._declared.clear()

    def close(self) -> None:
        """Close the connection to the broker."""
        self._declared.clear()
        connection, self._connection, self._producer = self._connection, None, None
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.release()


def _queue(name: str) -> Queue:
    on_rabbitmq = topology.is_rabbitmq(current_app.conf.broker_url)
    return topology.reply_queue(name) if on_rabbitmq else Queue(name, durable=True, auto_delete=False)


@contextlib.contextmanager
def _channel() -> Iterator[Any]:
    connection = _connection()
    try:
        connection.ensure_connection(max_retries=0, timeout=5)
        yield connection.channel()
    finally:
        connection.release()


def delete_queues(names: Sequence[str]) -> None:
    """Delete these queues with their messages. Queues that are already gone are ignored."""
    with _channel() as channel:
        for name in names:
            if isinstance(channel, virtual.Channel):
                channel._delete(name, "", name, "")  # its queue_delete() deletes only what is bound to an exchange
            else:
                _queue(name).bind(channel).delete()


def declare_queue(name: str) -> None:
    """Declare the queue, so that its reader can subscribe before the first message."""
    with _channel() as channel:
        _queue(name).bind(channel).declare()
