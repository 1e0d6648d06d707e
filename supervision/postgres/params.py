"""The parameters of connections that the engine opens besides Django's: the same server, the same time limits, a name."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections

# Django's own options of a PostgreSQL database. libpq does not know them.
NOT_LIBPQS = ("pool", "isolation_level", "server_side_binding", "assume_role", "prepare_threshold", "cursor_factory", "context")
DIRECT = "direct"  # the alias that leads to the server itself, where DATABASES["default"] is a pooler in transaction mode
MOST_LETTERS = 63  # PostgreSQL cuts a longer application_name
known: Any = threading.local()  # wrappers: the connections of this thread that `db.end_open_transactions` has looked up
_own: list[str] = []  # the name of the project's own database


def direct() -> str:
    """The alias of connections that keep a session."""
    return DIRECT if DIRECT in connections.settings else DEFAULT_DB_ALIAS


def remember_name() -> None:
    """Remember the name of the project's own database, when the process starts.

    Django's tests give `default` another name. They migrate the test database before they rename `direct` as well: so the engine's
    own sessions follow `default`, and never come to the project's database.
    """
    _own[:] = [str(connections.settings[DEFAULT_DB_ALIAS]["NAME"])]


def _of_tests() -> str | None:
    """The name of the test database, while there is one."""
    name = str(connections.settings[DEFAULT_DB_ALIAS]["NAME"])
    return name if _own and name != _own[0] else None


def of_own(purpose: str) -> dict[str, Any]:
    """The parameters of a connection to the server itself. purpose: what pg_stat_activity says that it does."""
    params = libpqs(connections[direct()].get_connection_params())
    if name := _of_tests():
        params["dbname"] = name
    return {**params, "application_name": named(params.get("application_name"), purpose)}


def libpqs(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that libpq knows."""
    return {name: value for name, value in options.items() if name not in NOT_LIBPQS}


def named(name: Any, purpose: str) -> str:
    """The name of a connection: `sas:web:requests` becomes `sas:web:PURPOSE`."""
    prefix, _, last = str(name or "supervision").rpartition(":")
    return f"{prefix if ':' in prefix else last}:{purpose}"[:MOST_LETTERS]


@contextmanager
def own_session() -> Iterator[None]:
    """In the body this thread's statements have one session: advisory locks, temporary tables and settings stay.

    Costs nothing where `default` is the server itself. Do not begin it in a transaction.
    """
    if direct() == DEFAULT_DB_ALIAS:
        yield
        return
    pooled, session = connections[DEFAULT_DB_ALIAS], connections.create_connection(DIRECT)
    session.alias = DEFAULT_DB_ALIAS  # Django's transactions look a connection up by its alias
    if name := _of_tests():
        session.settings_dict = {**session.settings_dict, "NAME": name}
    connections[DEFAULT_DB_ALIAS], known.wrappers = session, ()
    try:
        yield
    finally:
        connections[DEFAULT_DB_ALIAS], known.wrappers = pooled, ()
        session.close()
