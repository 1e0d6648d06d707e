"""Runs statements on PostgreSQL: prepared, on Django's own connection, and again after a transient fault.

psycopg's own cursor binds on the server and prepares. Django's never does, which costs 27 us of the database's CPU per
order. A generic plan made while a table was nearly empty is very slow once the table has grown. So plans are discarded:
after one second of a connection's life, then after two, four and so on, up to a minute.
"""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import psycopg
from django.db import DEFAULT_DB_ALIAS, InterfaceError, OperationalError, connection, connections, transaction
from psycopg.errors import DeadlockDetected, SerializationFailure
from psycopg.types.datetime import TimestamptzLoader
from psycopg.types.json import JsonLoader

from supervision.postgres import params
from supervision.postgres.backend.outage import Away, has_word

log = logging.getLogger(__name__)
T = TypeVar("T")

_REPLAN_SECONDS = 1.0
_MOST_REPLAN_SECONDS = 60.0
_PATIENCE_SECONDS = 20.0
_local = threading.local()
# Per connection, not per thread: a web process has a new thread for every request.
_age: WeakKeyDictionary[psycopg.Connection[Any], float] = WeakKeyDictionary()
_replan_at: WeakKeyDictionary[psycopg.Connection[Any], float] = WeakKeyDictionary()


class Cursor(psycopg.Cursor[tuple[Any, ...]]):
    """A thread's cursor. JSON columns come as Python values. replan_at: `time.monotonic()` value after which plans may be too old."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        super().__init__(connection)
        self.replan_at = 0.0
        # psycopg's own, in C; Django's is in Python and costs 6 us a value.
        self.adapters.register_loader("timestamptz", TimestamptzLoader)
        self.adapters.register_loader("json", JsonLoader)  # Django's returns text
        self.adapters.register_loader("jsonb", JsonLoader)


def run(
    statement: str,
    params: Mapping[str, Any] | None = None,
    *,
    patience: float | None = _PATIENCE_SECONDS,
    after_loss: Callable[[], list[tuple[Any, ...]]] | None = None,
) -> list[tuple[Any, ...]]:
    """Execute one statement in a commit of its own, or in the caller's transaction; returns its rows (none if it has none).

    Lists among the parameters become arrays. Outside a transaction the statement is executed again after a transient fault
    (`repeat`), for up to `patience` seconds; None: never. Raises Django's errors.
    """
    now = time.monotonic()
    wrapper = connections[DEFAULT_DB_ALIAS]
    try:
        cursor: Cursor | None = getattr(_local, "cursor", None)
        if cursor is None or cursor.connection is not wrapper.connection or now > cursor.replan_at:
            cursor = _ready(wrapper, now)
        # psycopg would convert lists element by element, at many times the cost.
        cursor.execute(statement, params and {name: _array(value) if type(value) is list else value for name, value in params.items()})
        # `description` would make an object for every column.
        return cursor.fetchall() if cursor.pgresult is not None and cursor.pgresult.nfields else []
    except (psycopg.Error, OperationalError, InterfaceError):
        try:
            with wrapper.wrap_database_errors:
                raise
        except (OperationalError, InterfaceError) as fault:
            if patience is None or wrapper.in_atomic_block:
                raise
            return repeat(lambda: fetch(statement, params), fault, deadline=now + patience, after_loss=after_loss)


fetch = partial(run, patience=None)  # for statements in a caller's transaction, which is repeated as a whole, and for reads that may fail


def _ready(wrapper: Any, now: float) -> Cursor:
    """This thread's cursor on the present connection, whose plans are not too old."""
    wrapper.ensure_connection()
    raw = wrapper.connection
    cursor: Cursor | None = getattr(_local, "cursor", None)
    if cursor is None or cursor.connection is not raw:
        cursor = _local.cursor = Cursor(raw)
        if params.direct() != DEFAULT_DB_ALIAS:  # behind a pooler the next statement may reach another server session
            cursor.replan_at = _replan_at[raw] = math.inf
        else:
            raw.prepare_threshold = 0
    if now > _replan_at.get(raw, 0.0):
        _age[raw] = age = min(2 * _age.get(raw, _REPLAN_SECONDS / 2), _MOST_REPLAN_SECONDS)
        _replan_at[raw] = now + age
        cursor.execute("DISCARD PLANS")
    cursor.replan_at = _replan_at[raw]
    return cursor


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


# SQLSTATEs of a lost connection, a server that is full or ends or takes no writes, a lost race.
_PASSING = ("08", "25006", "53", "57P", "40001", "40P01")


def passes(error: BaseException) -> bool:
    """Whether this is a transient fault of the database, and not its caller's mistake."""
    if not isinstance(error, OperationalError | InterfaceError):
        return False
    state = getattr(error.__cause__, "sqlstate", None)
    return state.startswith(_PASSING) if state else connection.connection is None or connection.connection.closed


def guarded(work: Callable[[], T], *, patience: float = _PATIENCE_SECONDS) -> T:
    """Run `work`, and run it again after a transient fault (`repeat`), unless the caller is in a transaction."""
    deadline = time.monotonic() + patience
    try:
        return work()
    except (OperationalError, InterfaceError) as fault:
        if connection.in_atomic_block:
            raise
        return repeat(work, fault, deadline=deadline)


def transact(work: Callable[[], T], *, after_loss: Callable[[], T] | None = None) -> T:
    """Run `work` in one transaction, and again from its start (as `after_loss`) after a transient fault (`repeat`)."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    try:
        with transaction.atomic():
            return work()
    except (OperationalError, InterfaceError) as fault:
        if connection.in_atomic_block:
            raise
        again = None if after_loss is None else transaction.atomic(after_loss)
        return repeat(transaction.atomic(work), fault, deadline=deadline, after_loss=again)


def repeat(
    work: Callable[[], T], fault: OperationalError | InterfaceError, *, deadline: float, after_loss: Callable[[], T] | None = None
) -> T:
    """Run `work`, which failed with `fault`, again: after a deadlock, a serialization failure or a lost connection.

    Safe because every statement of the engine is guarded: if the first try did commit, the repetition finds nothing to do.
    after_loss: run instead of `work` once a connection was lost, for callers that need the answer of a try that did commit.
    Inside a transaction nothing is repeated: that is up to its outermost caller. Raises the last fault after `deadline`, a
    `time.monotonic()` value, and at once where this process knows that the database is away.
    """
    pause = 0.02
    while True:
        if not isinstance(fault.__cause__, DeadlockDetected | SerializationFailure):
            connection.close()
            work = after_loss or work
        if time.monotonic() + pause > deadline or isinstance(fault.__cause__, Away):
            raise fault
        log.warning("the database did not answer (%s), trying again", str(fault).strip().splitlines()[:1])
        time.sleep(pause * (0.5 + random.random()))  # noqa: S311 - spreads load, protects nothing
        pause = min(pause * 2, 1.0)
        try:
            return work()
        except (OperationalError, InterfaceError) as another:
            fault = another


def with_lost(statement: Callable[[], list[tuple[Any, ...]]], lost: str, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """The rows of the statement, and those that an earlier try of it committed before its connection was lost."""
    rows = statement()
    found = {row[0] for row in rows}
    return [*rows, *(row for row in fetch(lost, params) if row[0] not in found)]


def drop_lost_connections() -> None:
    """Close this thread's connections that the server has ended or that have failed, so that their next use connects again.

    It costs no statement while they are well: the server says goodbye on the socket. A connection in a transaction is left alone.
    """
    for wrapper in connections.all(initialized_only=True):
        raw = wrapper.connection
        if isinstance(raw, psycopg.Connection) and (raw.closed or has_word(raw)):
            wrapper.errors_occurred = True  # Django then asks whether it still works
        wrapper.close_if_unusable_or_obsolete()
