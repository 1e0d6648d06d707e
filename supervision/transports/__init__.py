"""kombu's transports, made to outlive whatever lies in a queue.

kombu takes for granted that what comes off a queue is a message: an envelope that is not JSON, lacks its properties or
names a codec that does not exist raises in the middle of the consumer, which ends the worker, and on Redis the message
is gone by then. These transports hand such a thing on as a message whose body is its exact bytes and which carries the
header `UNREADABLE`; `poison` then sets it aside like any other. Every message also knows its bytes as they were (`raw`)
and the queue it came from (`queue`).
"""

from __future__ import annotations

from kombu import transport as kombu_transport

OURS = {
    "amqp": "supervision.transports.rabbitmq:Transport",
    "amqps": "supervision.transports.rabbitmq:SSLTransport",
    "pyamqp": "supervision.transports.rabbitmq:Transport",
    "redis": "supervision.transports.redis:Transport",
    "rediss": "supervision.transports.redis:Transport",
    "pgmq": "supervision.transports.pgmq:Transport",
}


def install() -> None:
    """Have kombu use these for the brokers' URLs. Call it where the Celery application is made."""
    kombu_transport.TRANSPORT_ALIASES.update(OURS)
    for name in OURS:
        kombu_transport._transport_cache.pop(name, None)
