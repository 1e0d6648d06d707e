"""Put messages into queues byte for byte, on each broker, without the project's code."""

from __future__ import annotations

import json
import uuid
from base64 import b64encode
from collections.abc import Sequence
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

import amqp
import psycopg
import redis

from tests.intake.corpus import AMQP_PROPERTIES, ITEMS, REDIS_ITEMS, Case

QUEUE = "agent.stock"


class Broker(Protocol):
    """The operations that the tests need of a broker."""

    name: str

    def publish(self, cases: Sequence[Case], queue: str = QUEUE) -> None:
        """Publish these messages as they are."""

    def publish_items(self) -> list[bytes]:
        """Publish items that are no messages; returns the bytes that the dead letters must hold."""

    def left(self, queue: str = QUEUE) -> int:
        """How many messages are in the queue, or fetched and not acknowledged."""


class RawProperties(amqp.Message):
    """A message whose properties are these bytes."""

    def __init__(self, body: bytes, properties_as_bytes: bytes) -> None:
        super().__init__(body)
        self.as_bytes = properties_as_bytes

    def _serialize_properties(self) -> bytes:
        return self.as_bytes


class Amqp:
    """RabbitMQ, through py-amqp."""

    name = "amqp"

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.connection = amqp.Connection(
            f"{parts.hostname}:{parts.port or 5672}",
            userid=parts.username or "guest",
            password=parts.password or "guest",
            virtual_host=unquote(parts.path[1:]) or "/",
            confirm_publish=True,
        )
        self.connection.connect()
        self.channel = self.connection.channel()
        self.queue = ""

    def message(self, case: Case, **properties: Any) -> amqp.Message:
        """The AMQP message of this case."""
        given = {"content_type": case.content_type, "content_encoding": case.content_encoding, "application_headers": case.headers or None}
        return amqp.Message(case.body, **{name: value for name, value in {**given, **properties}.items() if value is not None})

    def publish(self, cases: Sequence[Case], queue: str = QUEUE) -> None:
        for case in cases:
            self.channel.basic_publish(self.message(case), routing_key=queue)

    def publish_items(self) -> list[bytes]:
        bodies = []
        for number, properties in enumerate(AMQP_PROPERTIES):
            bodies.append(b"body \xff %d" % number)
            self.channel.basic_publish(RawProperties(bodies[-1], properties), routing_key=QUEUE)
        return bodies

    def left(self, queue: str = QUEUE) -> int:
        return int(self.channel.queue_declare(queue, passive=True).message_count)

    def close(self) -> None:
        self.connection.close()


def enveloped(case: Case) -> str:
    """The case as kombu's virtual transports carry it."""
    return json.dumps(
        {
            "body": b64encode(case.body).decode(),
            "content-type": case.content_type,
            "content-encoding": case.content_encoding,
            "headers": case.headers,
            "properties": {
                "body_encoding": "base64",
                "delivery_tag": str(uuid.uuid4()),
                "delivery_info": {"exchange": "", "routing_key": QUEUE},
                "priority": 0,
            },
        }
    )


class Redis:
    """Redis, through its client library."""

    name = "redis"

    def __init__(self, url: str) -> None:
        self.client = redis.Redis.from_url(url)

    def publish(self, cases: Sequence[Case], queue: str = QUEUE) -> None:
        for case in cases:
            self.client.lpush(queue, enveloped(case))

    def publish_items(self) -> list[bytes]:
        for item in REDIS_ITEMS:
            self.client.lpush(QUEUE, item)
        return list(REDIS_ITEMS)

    def left(self, queue: str = QUEUE) -> int:
        return int(self.client.llen(queue)) + int(self.client.hlen("unacked"))

    def close(self) -> None:
        self.client.close()


class Pgmq:
    """pgmq, through its SQL functions."""

    name = "pgmq"

    def __init__(self, database_url: str) -> None:
        self.connection = psycopg.connect(database_url, autocommit=True)

    def _table(self, queue: str) -> str:
        return queue.replace(".", "_")

    def publish(self, cases: Sequence[Case], queue: str = QUEUE) -> None:
        for case in cases:
            self.connection.execute("SELECT pgmq.send(%s::text, %s::jsonb)", (self._table(queue), enveloped(case)))

    def publish_items(self) -> list[bytes]:
        bodies = []
        deep = "[" * 3000 + "]" * 3000
        for item in [*(json.dumps(item) for item in ITEMS), deep]:
            self.connection.execute("SELECT pgmq.send(%s::text, %s::jsonb)", (self._table(QUEUE), item))
            row = self.connection.execute("SELECT %s::jsonb::text", (item,)).fetchone()
            bodies.append(str(row[0]).encode() if row else b"")
        return bodies

    def left(self, queue: str = QUEUE) -> int:
        row = self.connection.execute("SELECT queue_length FROM pgmq.metrics(%s::text)", (self._table(queue),)).fetchone()
        return int(row[0]) if row else 0

    def close(self) -> None:
        """Drop the queues, which are tables in the tests' database."""
        for (name,) in self.connection.execute("SELECT queue_name FROM pgmq.list_queues()").fetchall():
            self.connection.execute("SELECT pgmq.drop_queue(%s::text)", (name,))
        self.connection.close()
