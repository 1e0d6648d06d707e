"""Finds a pooler in transaction mode between the engine and PostgreSQL.

Behind one, two statements of a connection may reach two server sessions: LISTEN, advisory locks, temporary tables and prepared
statements do not work. `DATABASES["direct"]`, which leads to the server itself, is for what needs a session.
"""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Any

import psycopg
from django.db import DEFAULT_DB_ALIAS, connections

from supervision.postgres import advice, params

EXIT_CODE = 1
ROUNDS = 20
REFUSED = "unsupported startup parameter"  # PgBouncer's words for `options`
TRANSACTIONS = (
    "the way to the database leads through a pooler in transaction mode: set {} to the PostgreSQL server itself, for listeners,"
    " locks and migrations, or use session mode"
)
OPTIONS = (
    "the way to the database leads through a pooler that refuses the start-up parameter `options`: set {} to the PostgreSQL server"
    " itself (transaction mode), or ignore_startup_parameters = options in pgbouncer.ini (session mode)"
)
NOT_DIRECT = "{} leads through a pooler in transaction mode: it must name the PostgreSQL server itself"


class Way(StrEnum):
    """What is between this process and the server."""

    DIRECT = "direct"
    SESSION = "session"  # a pooler; each client has a server session for as long as it is connected
    TRANSACTION = "transaction"


def way(alias: str = DEFAULT_DB_ALIAS) -> Way:
    """What this alias leads through. Raises psycopg.OperationalError where it cannot connect.

    A pooler invents the process id that it tells at the start. Two clients that are connected at once share a server session, or
    one of them changes its own, only in transaction mode.
    """
    given = params.libpqs(connections[alias].get_connection_params())
    given["application_name"] = params.named(given.get("application_name"), "start")
    with psycopg.connect(**given, autocommit=True, prepare_threshold=None) as one:
        if _server_session(one) == one.info.backend_pid:
            return Way.DIRECT
        with psycopg.connect(**given, autocommit=True, prepare_threshold=None) as other:
            seen: tuple[set[int], set[int]] = (set(), set())
            for _ in range(ROUNDS):
                for client, its in zip((one, other), seen, strict=True):
                    its.add(_server_session(client))
                if seen[0] & seen[1] or max(map(len, seen)) > 1:
                    return Way.TRANSACTION
    return Way.SESSION


def _server_session(client: psycopg.Connection[Any]) -> int:
    row = client.execute("SELECT pg_backend_pid()").fetchone()
    return int(row[0]) if row else 0


def flaw() -> str | None:
    """What is wrong with the way to the database, and what to do, in one line; None while all is well or the server is away."""
    try:
        if params.direct() == DEFAULT_DB_ALIAS:
            return TRANSACTIONS.format(advice.direct()) if way() is Way.TRANSACTION else None
        return NOT_DIRECT.format(advice.direct()) if way(params.DIRECT) is Way.TRANSACTION else None
    except psycopg.Error as problem:
        return refused(str(problem))


def refused(said: str) -> str | None:
    """What to do where these words of a failed connection are a pooler's that refuses `options`; else None."""
    return OPTIONS.format(advice.direct()) if REFUSED in said else None


def refuse_lost_sessions() -> None:
    """At the start of a process: end it, with one line and exit code 1, where its sessions would be lost between statements."""
    wrong = flaw()
    if wrong is not None:
        sys.stderr.write(f"refused: {wrong}\n")
        sys.exit(EXIT_CODE)
