"""How many processes, connections and how much memory a load needs: the sheet of docs/capacity.md as functions.

The figures of one process were measured on a running shop; docs/capacity.md says how. A test compares the connections with those
that a running shop opens.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from sasproject.env import counts_of, env_int, env_str
from supervision.agent import agents
from supervision.celery import broker_is_pgmq, pgmq_elsewhere
from supervision.insight.autoscaling import calls_at_once
from supervision.management.commands.work import CALLS

ROLES = ("web", "scheduler", "agents", "supervisor", "beat")
PROCESSES, EXAMPLE = "SAS_PROCESSES", "web=2,agents=10"
# Threads of a process with a connection of their own, besides those for tasks: heartbeat, watchdog, listener's work, intake,
# journal, mails, urgent mails, webhooks, channels, cached answers.
_THREADS = {"scheduler": 5, "agents": 4, "supervisor": 9}
_LISTENERS = {"scheduler": 1, "agents": 1, "supervisor": 1, "web": 1}
_BEAT = 2
_OUTAGE = 1  # a process of `web` asks on a connection of its own whether the database is back
# PGMQ's, where the broker is the same database: 4 publishers, and for what is consumed 2, and 1 that listens.
_QUEUES = {"scheduler": 7, "agents": 7, "supervisor": 7, "beat": 2, "web": 4}
MEMORY = {"web": 145, "scheduler": 110, "agents": 125, "supervisor": 155, "beat": 105}  # MiB
CPU_MS = {"web": 1.6, "scheduler": 0.2, "agents": 8.0, "supervisor": 1.8}  # for each order
BUSY = 0.6  # a process is planned to use this share of one core
COMMANDS, RESERVED = 5, 3  # manage.py, beside the roles; superuser_reserved_connections
SPARE_CALLS = 1.5  # calls come unevenly


@dataclass(frozen=True)
class Need:
    """What one role needs. connections and memory: of all its processes together; memory in MiB."""

    role: str
    processes: int
    connections: int
    memory: int


def connections(role: str) -> int:
    """The most connections to the database that one process of this role opens, with this process's settings."""
    queues = _QUEUES[role] if broker_is_pgmq() and pgmq_elsewhere() is None else 0
    if role == "web":
        pool = env_int("DATABASE_POOL_SIZE", settings.WEB_THREADS + 4, minimum=1)
        return pool + _LISTENERS[role] + _OUTAGE + queues
    if role == "beat":
        return _BEAT + queues
    return CALLS[role] + _THREADS[role] + _LISTENERS[role] + queues


def needs(processes: Mapping[str, int]) -> list[Need]:
    """What this number of processes of each role needs."""
    return [Need(role, count, count * connections(role), count * MEMORY[role]) for role in ROLES if (count := processes.get(role, 0))]


def processes_for(orders_per_second: float, call_seconds: float) -> dict[str, int]:
    """The processes for a load. call_seconds: how long a remote service takes to answer one call.

    One process of each agent at least, because each scales by itself. A spare one of web, scheduler and supervisor.
    """

    def busy(role: str) -> int:
        return math.ceil(orders_per_second * CPU_MS[role] / 1000 / BUSY)

    calls = orders_per_second * call_seconds * SPARE_CALLS
    of_agents = sum(max(1, math.ceil(calls / calls_at_once(agent))) for agent in agents())
    return {
        "web": max(2, busy("web")),
        "scheduler": max(2, busy("scheduler")),
        "agents": max(of_agents, busy("agents")),
        "supervisor": max(2, busy("supervisor")),
        "beat": 1,
    }


def max_connections(total: int) -> int:
    """The setting that holds so many connections of roles, those of commands, and PostgreSQL's reserved ones."""
    return total + COMMANDS + RESERVED


def configured() -> dict[str, int]:
    """The most processes of each role, as SAS_PROCESSES says; empty where it is not set. Raises ImproperlyConfigured."""
    return parsed(env_str(PROCESSES), PROCESSES)


def parsed(text: str, name: str) -> dict[str, int]:
    """`web=2,agents=10` as a dictionary. name: what an error names. Raises ImproperlyConfigured."""
    counts = counts_of(text, name, EXAMPLE)
    unknown = [role for role in counts if role not in ROLES]
    if unknown:
        raise ImproperlyConfigured(f"{name} names {unknown[0]!r}: expected {', '.join(ROLES)}.")
    return counts
