"""A thread's cursor: statements are prepared, sent together, lists become arrays, plans are made anew from time to time.

psycopg's own cursor binds on the server and prepares. Django's never does, which costs 27 us of the database's CPU per
order. A generic plan made while a table was nearly empty is very slow once the table has grown. So plans are discarded:
after one second of a connection's life, then after two, four and so on, up to a minute.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import psycopg
from django.db import DEFAULT_DB_ALIAS
from psycopg.pq import TransactionStatus
from psycopg.types.datetime import TimestamptzLoader
from psycopg.types.json import JsonLoader

from supervision.postgres import params as parameters

_REPLAN_SECONDS = 1.0
_MOST_REPLAN_SECONDS = 60.0
at_once = True  # tests that stop between statements switch it off: then each makes a round trip of its own
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


def of_this_thread(wrapper: Any, now: float) -> Cursor:
    """This thread's cursor on the wrapper's present connection, whose plans are not too old. now: a `time.monotonic()` value."""
    cursor: Cursor | None = getattr(_local, "cursor", None)
    if cursor is None or cursor.connection is not wrapper.connection or now > cursor.replan_at:
        cursor = _ready(wrapper, now)
    return cursor


def _ready(wrapper: Any, now: float) -> Cursor:
    """This thread's cursor on the present connection, whose plans are not too old."""
    wrapper.ensure_connection()
    raw = wrapper.connection
    cursor: Cursor | None = getattr(_local, "cursor", None)
    if cursor is None or cursor.connection is not raw:
        cursor = _local.cursor = Cursor(raw)
        if parameters.direct() != DEFAULT_DB_ALIAS:  # behind a pooler the next statement may reach another server session
            cursor.replan_at = _replan_at[raw] = math.inf
        else:
            raw.prepare_threshold = 0
    if now > _replan_at.get(raw, 0.0):
        _age[raw] = age = min(2 * _age.get(raw, _REPLAN_SECONDS / 2), _MOST_REPLAN_SECONDS)
        _replan_at[raw] = now + age
        cursor.execute("DISCARD PLANS")
    cursor.replan_at = _replan_at[raw]
    return cursor


def is_unbegun(connection: psycopg.Connection[Any]) -> bool:
    """Whether the driver would send a BEGIN of its own before the next statement, and would wait for the answer to it."""
    idle = at_once and not connection.autocommit and connection.pgconn.transaction_status == TransactionStatus.IDLE
    return idle and connection.isolation_level is None


def send(statements: Sequence[tuple[Cursor, str, Mapping[str, Any] | None]], *, begin: bool = False, commit: bool = False) -> None:
    """Execute these statements, each with its own cursor of one connection, in one round trip. `rows` then has their rows.

    begin: a transaction begins before the first. commit: it is committed after the last. Raises psycopg's errors.
    """
    connection = statements[0][0].connection
    if begin:
        connection.autocommit = True  # the driver would wait for the answer to its BEGIN
    with connection.pipeline():  # sends what it has also if a value cannot be sent: the transaction has begun in any case
        if begin:
            psycopg.Cursor(connection).execute("BEGIN", prepare=False)
        for cursor, statement, params in statements:
            cursor.execute(statement, params)
        if commit:
            psycopg.Cursor(connection).execute("COMMIT", prepare=False)


def rows(cursor: psycopg.Cursor[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The rows of the cursor's statement; none if it has none. `description` would make an object for every column."""
    return cursor.fetchall() if cursor.pgresult is not None and cursor.pgresult.nfields else []


def bound(params: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The parameters as psycopg gets them: lists as PostgreSQL writes arrays. It would convert them one by one, at many times the cost."""
    if not params:
        return params
    ready = dict(params)
    for name, values in params.items():
        if type(values) is not list:
            continue
        kinds = set(map(type, values))
        joined = "\0".join(values) if kinds == {str} else None
        if joined is not None and joined.count("\0") == len(values) - 1:  # no value contains a NUL itself
            text = '"' + joined.replace("\\", "\\\\").replace('"', '\\"').replace("\0", '","') + '"'
        elif kinds <= {int, float, bool}:
            text = ",".join(map(str, values))
        else:
            text = ",".join(
                ["NULL" if value is None else '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"' for value in values]
            )
        ready[name] = "{" + text + "}"
    return ready
