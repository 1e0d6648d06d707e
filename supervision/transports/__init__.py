"""Variants of kombu's transports that survive any content of a queue.

kombu assumes that every item of a queue is a valid message. An envelope that is not JSON, lacks its properties or names
a codec that does not exist raises inside the consumer, which ends the worker; on Redis the message is lost by then. These
transports pass such an item on as a message whose body is its exact bytes and which has the header `UNREADABLE`; `deadletters.validation`
then makes it a dead letter like any other. Every message also has its original bytes (`raw`) and the queue it came from
(`queue`).

May import: postgres. Public: envelope, options, topology, pgmq_tables, and the transports in `OURS`.
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


def installed() -> bool:
    """Whether kombu uses these."""
    return all(kombu_transport.TRANSPORT_ALIASES.get(name) == ours for name, ours in OURS.items())
