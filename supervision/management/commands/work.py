"""Start one role of the engine: a Celery worker with the queues of that role, or beat."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from celery import current_app, signals
from celery.beat import EmbeddedService
from celery.utils.log import LOG_LEVELS
from django.core.management.base import CommandError, CommandParser
from django.db import connection
from django.db.migrations import Migration
from django.db.migrations.executor import MigrationExecutor

from supervision.agent import agents
from supervision.dispatch import partitions
from supervision.management.base import Command as Base
from supervision.management.base import at_least, unseen, where
from supervision.postgres import fitness
from supervision.postgres.pooling import refuse_lost_sessions
from supervision.transports import topology
from supervision.worker import heartbeats

SCHEDULER, SUPERVISOR = ("submissions", "scheduler"), ("supervisor",)
CALLS = {"scheduler": 2, "agents": 4, "supervisor": 4, "all": 6}  # threads for tasks; agents' calls have threads of their own
PREFIX = "agent."


class Command(Base):
    """A worker reads the queues of its role from the registered agents, so a new agent needs no change of any start line."""

    help = (
        "Start one role, any number of times, on any machine: scheduler, agents, supervisor or beat. `all` is every role in "
        "one process, for a small installation or to try the engine. A Celery worker serves the queues of its role; those "
        "of the agents are known from the registered workflows. SIGTERM ends the role without loss."
    )
    needs_database = False  # a role waits for its database; `all` looks for it

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("role", choices=[*CALLS, "beat"])
        parser.add_argument("--only", metavar="AGENT,...", help="agents: serve these agents alone; payment.2 is one partition")
        parser.add_argument("--concurrency", type=at_least(1), metavar="N", help="tasks at once (default: 2 to 6, by role)")
        levels = [name for name in LOG_LEVELS if isinstance(name, str)]
        parser.add_argument(
            "--loglevel", type=str.upper, choices=levels, default="INFO", help="the least important messages in the log (default INFO)"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        os.environ.setdefault("CELERY_SKIP_CHECKS", "1")  # Celery would import every page for checks whose findings it drops
        role, app = options["role"], current_app._get_current_object()  # type: ignore[attr-defined]
        if options["only"] is not None and role != "agents":
            raise CommandError("--only belongs to the role agents")
        quieten()
        if role == "beat":
            refuse_lost_sessions()  # the other roles do when they start
            heartbeats.touch_file()  # before beat waits for its database
            app.Beat(loglevel=options["loglevel"]).run()
            return
        served = agent_queues(options["only"])
        queues = {"scheduler": SCHEDULER, "supervisor": SUPERVISOR, "agents": served, "all": (*SCHEDULER, *SUPERVISOR, *served)}
        if role == "all":
            self.look_at_database()
            beat = EmbeddedService(app, thread=True, scheduler_cls=app.conf.beat_scheduler)
            signals.worker_ready.connect(lambda **_: beat.start(), weak=False)
        self.look_at_broker(app, queues[role])
        name = os.environ.get("SAS_ROLE", "")  # `agents-order` tells one agents process from another
        worker = app.Worker(
            hostname=f"{name if name.startswith(role) else role}-{os.getpid()}@",
            queues=queues[role],
            pool="threads",
            concurrency=options["concurrency"] or CALLS[role],
            prefetch_multiplier=1,
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=not app.conf.worker_send_task_events,  # an event: with events, tools show which workers live
            loglevel=options["loglevel"],
        )
        worker.start()
        sys.exit(worker.exitcode)

    def look_at_broker(self, app: Any, queues: Sequence[str]) -> None:
        """Say which queues are missing, if this process may not declare them. It goes on: it consumes once they are declared."""
        if topology.may_declare() or not topology.is_rabbitmq(app.conf.broker_url):
            return
        with suppress(*app.connection_for_read().connection_errors), app.connection_for_read() as broker:
            broker.ensure_connection(max_retries=1, interval_start=0, interval_step=0, timeout=5)
            if lacking := topology.missing(broker, queues, [topology.TASKS]):
                self.stderr.write(f"the broker lacks {', '.join(lacking)}, and this role may not declare: run {topology.COMMAND}")

    def look_at_database(self) -> None:
        """Refuse to start without a database, or before the engine's tables are there: `all` is for people at a terminal.

        The other roles wait, because the machines of a larger installation start in any order.
        """
        try:
            connection.ensure_connection()
            if hidden := fitness.hidden():
                raise CommandError(unseen(hidden))
            executor = MigrationExecutor(connection)
            leaves = executor.loader.graph.leaf_nodes()
            lacking = [migration for migration, _ in executor.migration_plan([leaf for leaf in leaves if leaf[0] == "supervision"])]
            others = [migration for migration, _ in executor.migration_plan(leaves) if migration not in lacking]
        finally:
            connection.close()
        if lacking:
            raise CommandError(f"the database at {where()} lacks {named(lacking)}: run manage.py migrate")
        if others:
            self.stderr.write(f"the database at {where()} lacks {named(others)}: run manage.py migrate soon")


NOISY = {
    "celery.worker.strategy": logging.WARNING,  # a line for each message
    "celery.app.trace": logging.WARNING,  # a line for each task, most of them the canaries of idle processes
    "kombu.connection": logging.ERROR,  # pgmq:// has no host
}


def quieten() -> None:
    """Let the log tell of runs and troubles. A level that the project's LOGGING gives to one of these loggers stays."""
    for name, level in NOISY.items():
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(level)


def named(migrations: Sequence[Migration]) -> str:
    """How many migrations these are, and the first of them."""
    first = f"{migrations[0].app_label}.{migrations[0].name}"
    return f"the migration {first}" if len(migrations) == 1 else f"{len(migrations)} migrations, the first is {first}"


def agent_queues(only: str | None = None) -> list[str]:
    """The queues of these agents (of all, without a list). only: names such as `payment,payment.2`, also as `agent.payment`.

    Raises CommandError for an unknown agent.
    """
    known = {agent.queue: agent for agent in agents()}
    if not known:
        raise CommandError("no agent is registered: register the agents in the module `workflows` of an installed app")
    if only is None:
        return sorted(known)
    wanted = [PREFIX + name.strip().removeprefix(PREFIX) for name in only.split(",")]
    for queue in wanted:
        name, _, number = queue.removeprefix(PREFIX).partition(".")
        agent = known.get(PREFIX + name)
        if agent is None or (number and queue not in partitions.queues(agent)):
            there = ", ".join(sorted(agent.name for agent in known.values()))
            raise CommandError(f"no agent named {queue.removeprefix(PREFIX)!r} is registered; there are: {there}")
    return wanted
