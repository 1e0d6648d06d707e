"""Declares what the roles use at RabbitMQ, so that they need no right to declare it themselves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

from celery import current_app
from kombu.entity import Exchange

from supervision.agent import agents
from supervision.dispatch import partitions
from supervision.intake import amqp, amqp_consumer
from supervision.models import ReplyToken
from supervision.operations import doctor
from supervision.operations.doctor import Finding, Level
from supervision.transports import topology

QUEUES = ("submissions", "scheduler", "supervisor")  # of the roles that are no agents
EXCHANGES = (topology.TASKS, topology.REPLIES, topology.INTAKE)


def task_queues() -> list[str]:
    """The queues of all roles, those of the agents with their partitions, and those that the project defines."""
    theirs = {queue for agent in agents() for queue in (agent.queue, *partitions.queues(agent))}
    return sorted({*QUEUES, *theirs, *current_app.amqp.queues})


def declare(connection: Any) -> list[str]:
    """Declare exchanges, queues and bindings. May be repeated. Returns what there is now. Raises the broker's error."""
    with closing(connection.channel()) as channel:
        Exchange(topology.REPLIES, "direct", durable=True)(channel).declare()
        for name in task_queues():
            queue = current_app.amqp.queues[name]
            ours = queue.exchange.name == topology.TASKS
            (topology.task_queue(name, queue.queue_arguments, declares=True) if ours else queue)(channel).declare()
        for name in ReplyToken.objects.filter(revoked_at__isnull=True).order_by("id").values_list("queue", flat=True).iterator():
            topology.reply_queue(name)(channel).declare()
        topology.declare_intake_exchange(channel)
    intake = [queue.name for queue in amqp_consumer.declare(connection, declares=True)]
    return [*EXCHANGES, *task_queues(), *intake]


def missing(connection: Any) -> list[str]:
    """What a role would look for in vain."""
    return topology.missing(connection, [*task_queues(), amqp.NAME, amqp.DEAD], EXCHANGES)


def everything_is_declared() -> Iterator[Finding]:
    """Whether RabbitMQ has what the roles use, if they do not declare it themselves."""
    if topology.may_declare() or not topology.is_rabbitmq(current_app.conf.broker_url):
        return
    with current_app.connection_for_write() as connection:
        connection.ensure_connection(max_retries=1, interval_start=0, interval_step=0, timeout=5)
        lacking = missing(connection)
    if lacking:
        text = f"the broker lacks {', '.join(lacking[:5])}{' and more' if len(lacking) > 5 else ''}"
        yield Finding("queues", Level.FAIL, text, f"{topology.COMMAND}, with the address of the user who declares")
    else:
        yield Finding("queues", Level.OK, "everything is declared")


doctor.register("queues", everything_is_declared)
