"""Runs statements on PostgreSQL: prepared, on Django's own connection, and again after a transient fault.

psycopg's own cursor binds on the server and prepares. Django's never does, which costs 27 us of the database's CPU per
order. A generic plan made while a table was nearly empty is very slow once the table has grown. So plans are discarded:
after one second of a connection's life, then after two, four and so on, up to a minute.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import psycopg
from django.db import DEFAULT_DB_ALIAS, InterfaceError, OperationalError, connection, connections, transaction
from psycopg.errors import DeadlockDetected, SerializationFailure
from psycopg.types.datetime import TimestamptzLoader

log = logging.getLogger(__name__)
T = TypeVar("T")

_REPLAN_SECONDS = 1.0
_MOST_REPLAN_SECONDS = 60.0
_local = threading.local()
# Per connection, not per thread: a web process has a new thread for every request.
_age: WeakKeyDictionary[psycopg.Connection[Any], float] = WeakKeyDictionary()
_replan_at: WeakKeyDictionary[psycopg.Connection[Any], float] = WeakKeyDictionary()


def fetch(statement: str, params: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
    """Execute one statement on this thread's connection and return its rows (none where it returns none)."""
    wrapper = connections[DEFAULT_DB_ALIAS]
    with wrapper.wrap_database_errors:
        cursor = _cursor(wrapper)
        now = time.monotonic()
        if now > _replan_at.get(cursor.connection, 0.0):
            _age[cursor.connection] = age = min(2 * _age.get(cursor.connection, _REPLAN_SECONDS / 2), _MOST_REPLAN_SECONDS)
            _replan_at[cursor.connection] = now + age
            cursor.execute("DISCARD PLANS")
        cursor.execute(statement, params and _with_literals(params))
        # `description` would make an object for every column.
        return cursor.fetchall() if cursor.pgresult is not None and cursor.pgresult.nfields else []


def _with_literals(params: Mapping[str, Any]) -> dict[str, Any]:
    """Lists in PostgreSQL's array syntax: psycopg would convert them element by element, at many times the cost."""
    return {name: _array(value) if type(value) is list else value for name, value in params.items()}


def _array(values: list[Any]) -> str:
    kinds = set(map(type, values))
    if kinds <= {int, float, bool}:
        return "{" + ",".join(map(str, values)) + "}"
    if kinds == {str}:
        joined = "\0".join(values)
        if joined.count("\0") == len(values) - 1:  # no value contains a NUL itself
            return '{"' + joined.replace("\\", "\\\\").replace('"', '\\"').replace("\0", '","') + '"}'
    return "{" + ",".join(map(_element, values)) + "}"


def _element(value: Any) -> str:
    if value is None:
        return "NULL"
    if type(value) is int:
        return str(value)
    text = value if type(value) is str else str(value)
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _cursor(wrapper: Any) -> psycopg.Cursor[tuple[Any, ...]]:
    wrapper.ensure_connection()
    raw = wrapper.connection
    cursor: psycopg.Cursor[tuple[Any, ...]] | None = getattr(_local, "cursor", None)
    if cursor is None or cursor.connection is not raw or cursor.closed:
        raw.prepare_threshold = 0
        cursor = _local.cursor = psycopg.Cursor(raw)
        # psycopg's own, in C; Django's is in Python and costs 6 us a value.
        cursor.adapters.register_loader("timestamptz", TimestamptzLoader)
    return cursor


_PASSING = ("08", "53", "57P", "40001", "40P01")  # SQLSTATEs of a lost connection, a server that is full or ends, a lost race


def passes(error: BaseException) -> bool:
    """Whether this is a transient fault of the database, and not its caller's mistake."""
    if not isinstance(error, OperationalError | InterfaceError):
        return False
    state = getattr(error.__cause__, "sqlstate", None)
    return state.startswith(_PASSING) if state else connection.connection is None or connection.connection.closed


def guarded(work: Callable[[], T], *, patience: float = 20.0, after_loss: Callable[[], T] | None = None) -> T:
    """Run `work` and run it again after a deadlock, a serialization failure or a lost connection.

    Safe because every statement of the engine is guarded: if the first try did commit, the repetition finds nothing to do.
    after_loss: run instead of `work` once a connection was lost, for callers that need the answer of a try that did commit.
    Inside a transaction nothing is repeated: that is up to its outermost caller. Gives up after `patience` seconds.
    """
    if connection.in_atomic_block:
        return work()
    deadline = time.monotonic() + patience
    pause = 0.02
    while True:
        try:
            return work()
        except (OperationalError, InterfaceError) as error:
            cause = error.__cause__
            if not isinstance(cause, DeadlockDetected | SerializationFailure):
                connection.close()
                work = after_loss or work
            if time.monotonic() + pause > deadline:
                raise
            log.warning("the database did not answer (%s), trying again", str(error).strip().splitlines()[:1])
            time.sleep(pause * (0.5 + random.random()))  # noqa: S311 - spreads load, protects nothing
            pause = min(pause * 2, 1.0)


def run(statement: str, params: Mapping[str, Any] | None = None, *, patience: float = 20.0) -> list[tuple[Any, ...]]:
    """One guarded statement in a commit of its own (or in the caller's transaction)."""
    return guarded(lambda: fetch(statement, params), patience=patience)


def transact(work: Callable[[], T], *, after_loss: Callable[[], T] | None = None) -> T:
    """Run `work` in one transaction, and again from its start (as `after_loss`) after a transient fault."""

    def in_one(work: Callable[[], T]) -> T:
        with transaction.atomic():
            return work()

    return guarded(lambda: in_one(work), after_loss=None if after_loss is None else lambda: in_one(after_loss))


def with_lost(statement: Callable[[], list[tuple[Any, ...]]], lost: str, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """The rows of the statement, and those that an earlier try of it committed before its connection was lost."""
    rows = statement()
    found = {row[0] for row in rows}
    return [*rows, *(row for row in fetch(lost, params) if row[0] not in found)]
