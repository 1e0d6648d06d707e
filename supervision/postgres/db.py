"""Runs statements on PostgreSQL: prepared (`cursors`), on Django's own connection, and again after a transient fault."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import psycopg
from django.db import DEFAULT_DB_ALIAS, InterfaceError, OperationalError, connection, connections, transaction
from psycopg.errors import DeadlockDetected, SerializationFailure
from psycopg.pq import TransactionStatus

from supervision.postgres import cursors
from supervision.postgres import params as parameters
from supervision.postgres.backend.outage import Away, has_word

log = logging.getLogger(__name__)
T = TypeVar("T")
Statement = tuple[str, Mapping[str, Any] | None]
Rows = list[tuple[Any, ...]]

_PATIENCE_SECONDS = 20.0
_FULL_SECONDS = 1.0  # the same for a server that is full, where a client waits for the answer
_BEGUN = (TransactionStatus.INTRANS, TransactionStatus.INERROR)


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
        cursor = cursors.of_this_thread(wrapper, now)
        bound = cursors.bound(params)
        if wrapper.in_atomic_block and cursors.is_unbegun(cursor.connection):
            cursors.send([(cursor, statement, bound)], begin=True)
        else:
            cursor.execute(statement, bound)
        return cursors.rows(cursor)
    except (psycopg.Error, OperationalError, InterfaceError):
        try:
            with wrapper.wrap_database_errors:
                raise
        except (OperationalError, InterfaceError) as fault:
            if patience is None or wrapper.in_atomic_block:
                raise
            return repeat(lambda: fetch(statement, params), fault, deadline=now + patience, after_loss=after_loss)


fetch = partial(run, patience=None)  # for statements in a caller's transaction, which is repeated as a whole, and for reads that may fail


def fetch_together(*statements: Statement, commit: bool = False) -> list[Rows]:
    """Execute these statements of the caller's transaction in one round trip; returns the rows of each.

    None of them may need the result of another: all are sent before the first is answered. If one fails, its error is raised, those
    after it are not executed, and the transaction can only be rolled back. commit: the transaction is committed in the same round
    trip, unless it is a part of a larger one; the caller executes nothing more in it. Raises Django's errors; nothing is repeated.
    """
    wrapper = connections[DEFAULT_DB_ALIAS]
    if not cursors.at_once:
        return [fetch(statement, params) for statement, params in statements]
    with wrapper.wrap_database_errors:
        first = cursors.of_this_thread(wrapper, time.monotonic())
        ready = [
            (cursors.Cursor(first.connection) if number else first, statement, cursors.bound(params))
            for number, (statement, params) in enumerate(statements)
        ]
        last = commit and len(wrapper.atomic_blocks) == 1 and wrapper.commit_on_exit
        cursors.send(ready, begin=cursors.is_unbegun(first.connection), commit=last)
        return [cursors.rows(cursor) for cursor, _, _ in ready]


_AWAY = ("08", "25006", "57P")  # SQLSTATEs of a lost connection, and of a server that ends or takes no writes
_PASSING = (*_AWAY, "53", "40001", "40P01")  # and of a full one, and of a lost race


def passes(error: BaseException, states: tuple[str, ...] = _PASSING) -> bool:
    """Whether this is a transient fault of the database, and not its caller's mistake."""
    if not isinstance(error, OperationalError | InterfaceError):
        return False
    state = getattr(error.__cause__, "sqlstate", None)
    return state.startswith(states) if state else connection.connection is None or connection.connection.closed


def is_away(error: BaseException) -> bool:
    """Whether the database is away, so that other statements fail, too. A full server and a lost race may concern one alone."""
    return passes(error, _AWAY)


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
        with transaction.atomic(), blocks_of_others():
            return work()
    except (OperationalError, InterfaceError) as fault:
        if connection.in_atomic_block:
            raise
        again = None if after_loss is None else _whole(after_loss)
        return repeat(_whole(work), fault, deadline=deadline, after_loss=again)


def _whole(work: Callable[[], T]) -> Callable[[], T]:
    """Run `work` in one transaction."""
    return transaction.atomic(blocks_of_others()(work))


def repeat(
    work: Callable[[], T], fault: OperationalError | InterfaceError, *, deadline: float, after_loss: Callable[[], T] | None = None
) -> T:
    """Run `work`, which failed with `fault`, again: after a deadlock, a serialization failure or a lost connection.

    Safe because every statement of the engine is guarded: if the first try did commit, the repetition finds nothing to do.
    after_loss: run instead of `work` once a connection was lost, for callers that need the answer of a try that did commit.
    Inside a transaction nothing is repeated: that is up to its outermost caller. Raises the last fault after `deadline`, a
    `time.monotonic()` value, and at once where this process knows that the database is away. A server that is full is rarely so for
    a moment: where connections are pooled, for clients that wait, it is given _FULL_SECONDS.
    """
    pause, began = 0.02, time.monotonic()
    while True:
        if not isinstance(fault.__cause__, DeadlockDetected | SerializationFailure):
            connection.close()
            work = after_loss or work
        if _is_full(fault) and connection.settings_dict["OPTIONS"].get("pool"):
            deadline = min(deadline, began + _FULL_SECONDS)
        if time.monotonic() + pause > deadline or isinstance(fault.__cause__, Away):
            raise fault
        log.warning("the database did not answer (%s), trying again", str(fault).strip().splitlines()[:1])
        time.sleep(pause * (0.5 + random.random()))  # noqa: S311 - spreads load, protects nothing
        pause = min(pause * 2, 1.0)
        try:
            return work()
        except (OperationalError, InterfaceError) as another:
            fault = another


def _is_full(fault: BaseException) -> bool:
    return str(getattr(fault.__cause__, "sqlstate", None)).startswith("53")


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


def end_open_transactions() -> bool:
    """Roll back what other code has left open on this thread, in any database; returns whether there was anything.

    An open transaction keeps its locks, and the next call on the thread would write into it. The connection is given up,
    because Django counts on it how many blocks are open. Connections are looked up once for each thread: that takes as long as ten
    checks, and where the project has several databases, until the thread has used each of them.
    """
    wrappers = getattr(parameters.known, "wrappers", ())
    if len(wrappers) < len(connections.settings):
        connections[DEFAULT_DB_ALIAS]
        wrappers = parameters.known.wrappers = connections.all(initialized_only=True)
    found = False
    for wrapper in wrappers:
        if _is_open(wrapper):
            found = True
            _give_up(wrapper)
    return found


class TransactionLeftOpen(Exception):
    """Other code has entered an atomic block and has not left it, or has begun a transaction and has not ended it."""


@contextmanager
def blocks_of_others() -> Iterator[None]:
    """Call other code, in the caller's transaction or outside any. Raises TransactionLeftOpen if it leaves a block open.

    However it ends, the blocks that it has left open in the caller's transaction are forgotten: otherwise the end of the caller's
    block would end one of them, and the transaction would never be committed, nor would what this thread does next. Outside a
    transaction, what it has left open is rolled back.
    """
    wrapper: Any = connections[DEFAULT_DB_ALIAS]
    inside, blocks, savepoints = wrapper.in_atomic_block, len(wrapper.atomic_blocks), len(wrapper.savepoint_ids)
    try:
        yield
    finally:
        left = len(wrapper.atomic_blocks) > blocks if inside else end_open_transactions()
        if inside:
            del wrapper.atomic_blocks[blocks:], wrapper.savepoint_ids[savepoints:]
    if left:
        raise TransactionLeftOpen("it has left a transaction open")


def _is_open(wrapper: Any) -> bool:
    """Whether code that should have ended a transaction did not. Where a project has no autocommit, a read leaves one open, too."""
    if (raw := wrapper.connection) is None or wrapper.in_atomic_block:
        return bool(wrapper.in_atomic_block)
    if not wrapper.settings_dict["AUTOCOMMIT"]:
        return False
    return not wrapper.autocommit or (isinstance(raw, psycopg.Connection) and raw.pgconn.transaction_status in _BEGUN)


def _give_up(wrapper: Any) -> None:
    if (raw := wrapper.connection) is not None:
        raw.close()
        if pool := getattr(raw, "_pool", None):
            pool.putconn(raw)  # it counts what it has lent, and makes another one
    del connections[wrapper.alias]
    parameters.known.wrappers = ()
