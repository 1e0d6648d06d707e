"""RabbitMQ: the exchanges and queues of the engine, and how tasks travel between them.

Tasks go through the topic exchange TASKS under the name of their queue, because RabbitMQ can grant a user single routing
keys of a topic exchange alone. A user who may write to the default exchange could write to every queue.

Redis and PGMQ have no permissions by exchange: there, Celery's own queues are used.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

from amqp.exceptions import AMQPError
from celery.app.amqp import AMQP, Queues
from django.conf import settings
from kombu.entity import Exchange, Queue

TASKS = "supervision.tasks"
REPLIES = "supervision.replies"
INTAKE = "intake"
INTAKE_KEY = "submissions"
COMMAND = "manage.py broker_topology"


def is_rabbitmq(url: str | None) -> bool:
    """Whether this address is one of RabbitMQ."""
    return urlsplit(url or "").scheme in ("amqp", "amqps", "pyamqp")


def may_declare() -> bool:
    """Whether this process declares what it uses (`CELERY_BROKER_DECLARE`), or a command did before."""
    return bool(getattr(settings, "CELERY_BROKER_DECLARE", True))


def task_queue(name: str, arguments: Any = None, *, declares: bool | None = None) -> Queue:
    """The queue of this name, bound to TASKS. declares: None for what the setting says."""
    used_as_it_is = not (may_declare() if declares is None else declares)
    exchange = Exchange(TASKS, "topic", durable=True, no_declare=used_as_it_is)
    return Queue(name, exchange, routing_key=name, durable=True, queue_arguments=arguments, no_declare=used_as_it_is)


def reply_queue(name: str) -> Queue:
    """The reply queue of this name, bound to REPLIES. It is made when its token is issued, so its writer declares it."""
    exchange = Exchange(REPLIES, "direct", durable=True, no_declare=not may_declare())
    return Queue(name, exchange, routing_key=name, durable=True, auto_delete=False)


class OurQueues(Queues):
    """Celery's queues by name. One that the project does not define is bound to TASKS."""

    def new_missing(self, name: str) -> Queue:
        return task_queue(name, super().new_missing(name).queue_arguments)


class OnRabbitMQ(AMQP):
    """Celery's messages, but tasks travel through TASKS where the broker is RabbitMQ."""

    @property
    def queues_cls(self) -> type[Queues]:
        """The class of Celery's queues by name."""
        return OurQueues if is_rabbitmq(self.app.conf.broker_url) else Queues

    def Queues(self, queues: Any, *args: Any, **options: Any) -> Queues:  # noqa: N802 - Celery's name
        """Celery's queues by name, also the default one."""
        default = self.app.conf.task_default_queue
        if not queues and default and is_rabbitmq(self.app.conf.broker_url):
            queues = (task_queue(default),)
        made: Queues = super().Queues(queues, *args, **options)
        return made


def declare_intake_exchange(channel: Any) -> None:
    """Declare the exchange of external producers. Raises the broker's error."""
    Exchange(INTAKE, "direct", durable=True)(channel).declare()


def missing(connection: Any, queues: Sequence[str], exchanges: Sequence[str]) -> list[str]:
    """Which of these the broker does not have. Asks passively, which needs no permission."""
    lacking = []
    for kind, names in (("queue", queues), ("exchange", exchanges)):
        for name in names:
            with closing(connection.channel()) as channel:
                try:
                    if kind == "queue":
                        channel.queue_declare(name, passive=True)
                    else:
                        channel.exchange_declare(name, "direct", passive=True)
                except AMQPError:
                    lacking.append(f"the {kind} {name}")
    return lacking
