"""Lets one `migrate` run at a time, and ends the autovacuums that hold locks on its tables."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django.db import OperationalError, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

LOOK_AGAIN_SECONDS = 0.5
AUTOVACUUM_SECONDS = 5.0  # more than deadlock_timeout, after which the server ends an autovacuum that holds a statement up
_KEY = "hashtextextended('supervision migrate', 20261125)"
# Tables on which another session holds the lock of a vacuum. That lock says nothing of who holds it.
_VACUUMED = """
SELECT DISTINCT format('%I.%I', n.nspname, c.relname)
  FROM pg_locks l JOIN pg_class c ON c.oid = l.relation JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE l.mode = 'ShareUpdateExclusiveLock' AND l.granted AND l.pid <> pg_backend_pid() AND c.relkind = 'r'
   AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND pg_table_is_visible(c.oid)
"""


@contextmanager
def alone(connection: BaseDatabaseWrapper, say: Callable[[str], object]) -> Iterator[None]:
    """Hold the database's lock of `migrate` in the block. A second caller waits for the first, between statements.

    A statement that waited in the database would hold a snapshot, for which `CREATE INDEX CONCURRENTLY` of the first would wait.
    """
    waits = False
    while not _value(connection, f"SELECT pg_try_advisory_lock({_KEY})"):
        if not waits:
            say("another migrate works on this database; waiting for it")
        waits = True
        time.sleep(LOOK_AGAIN_SECONDS)
    try:
        yield
    finally:
        if connection.is_usable():
            _value(connection, f"SELECT pg_advisory_unlock({_KEY})")


def end_autovacuums(connection: BaseDatabaseWrapper) -> None:
    """Let the server end the autovacuums of this database's tables. It begins them again later.

    Autovacuum gives way to a statement that has waited longer than `deadlock_timeout`, which is longer than we let clients wait.
    So this waits for a lock that conflicts with a vacuum and not with readers and writers.
    """
    with connection.cursor() as cursor:
        cursor.execute(_VACUUMED)
        tables = [row[0] for row in cursor.fetchall()]
    for table in tables:
        try:
            with transaction.atomic(using=connection.alias), connection.cursor() as cursor:
                cursor.execute("SELECT set_config('lock_timeout', %s, true)", [f"{int(AUTOVACUUM_SECONDS * 1000)}ms"])
                cursor.execute(f"LOCK TABLE {table} IN SHARE UPDATE EXCLUSIVE MODE")
        except OperationalError:
            continue  # a vacuum of an operator, or one that must not be ended: the next try of the migration meets it again


def _value(connection: BaseDatabaseWrapper, query: str) -> object:
    with connection.cursor() as cursor:
        cursor.execute(query)
        return cursor.fetchone()[0]
