"""Indexes that a migration was building when it was cut off.

A migration that is not atomic is not rolled back. An index that was not finished is invalid: writers keep it up to date, and no
query uses it. One that was finished, but is not recorded, is valid. Both make the next try fail, because the name is taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations import Migration, RunSQL, SeparateDatabaseAndState

_BUILT = re.compile(r'CREATE\s+(?:UNIQUE\s+)?INDEX\s+CONCURRENTLY\s+(?!IF\s)"?(\w+)', re.IGNORECASE)
_DROPPED = re.compile(r'DROP\s+INDEX\s+CONCURRENTLY\s+IF\s+EXISTS\s+"?(\w+)', re.IGNORECASE)
_THERE = "SELECT c.relname FROM pg_class c WHERE c.relkind = 'i' AND c.relname = ANY (%s) AND pg_table_is_visible(c.oid) ORDER BY 1"


def drop(connection: BaseDatabaseWrapper, migration: Migration, *, backwards: bool) -> list[str]:
    """Drop the indexes that this migration is about to build and that are there already; returns their names.

    backwards: whether it is about to be undone. Do not call it in a transaction. Readers and writers go on meanwhile.
    """
    with connection.cursor() as cursor:
        cursor.execute(_THERE, [sorted(built_by(migration, backwards=backwards))])
        names = [row[0] for row in cursor.fetchall()]
        for name in names:
            cursor.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {connection.ops.quote_name(name)}")
    return names


def built_by(migration: Migration, *, backwards: bool) -> set[str]:
    """The names of the indexes that this migration builds and does not drop itself before."""
    built, dropped = set(), set()
    for operation in _flat(migration.operations):
        if isinstance(operation, AddIndexConcurrently) and not backwards:
            built.add(operation.index.name)
        elif isinstance(operation, RemoveIndexConcurrently) and backwards:
            built.add(operation.name)
        elif isinstance(operation, RunSQL):
            text = "\n".join(_statements(operation.reverse_sql if backwards else operation.sql))
            built.update(_BUILT.findall(text))
            dropped.update(_DROPPED.findall(text))
    return built - dropped


def _flat(operations: Iterable[Any]) -> Iterator[Any]:
    """The operations that touch the database."""
    for operation in operations:
        if isinstance(operation, SeparateDatabaseAndState):
            yield from _flat(operation.database_operations)
        else:
            yield operation


def _statements(sql: Any) -> Iterator[str]:
    """The texts of a RunSQL: one, or a list of texts and of pairs with parameters."""
    if isinstance(sql, str):
        yield sql
    else:
        for part in sql or ():
            yield part if isinstance(part, str) else part[0]
