"""What a plan that goes back would delete: the rows of tables, and the values of columns, that the older release does not have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from django.apps.registry import Apps
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations import AddField, CreateModel, Migration, SeparateDatabaseAndState

MOST_ROWS = 1000  # rows are counted up to here: a table may have very many
_DEFAULT = """
SELECT pg_get_expr(d.adbin, d.adrelid) FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
 WHERE a.attrelid = to_regclass(%s) AND a.attname = %s AND NOT a.attisdropped
"""


@dataclass(frozen=True)
class Loss:
    """A table with rows, or a column with values, that undoing a migration deletes. rows: counted up to `MOST_ROWS`."""

    migration: str
    what: str
    rows: int


def lost(connection: BaseDatabaseWrapper, plan: Iterable[tuple[Migration, bool]], apps: Apps) -> list[Loss]:
    """What undoing the migrations of this plan deletes. apps: the models as they are in the database now.

    Nothing for a plan that goes forwards. A column without a default counts where it is not null, another where it has another
    value than its default. The tables are read, and not locked.
    """
    undone = [migration for migration, backwards in plan if backwards]
    tables, columns = [], []
    for migration in undone:
        for operation in _database_operations(migration.operations):
            model = _model(apps, migration.app_label, operation)
            if model is None or not model._meta.managed:
                continue
            if isinstance(operation, CreateModel):
                tables.append((migration, model))
            elif any(field.name == operation.name and field.column for field in model._meta.local_fields):
                columns.append((migration, model, model._meta.get_field(operation.name).column))
    found = [(migration, model._meta.db_table, _rows(connection, model._meta.db_table, "true")) for migration, model in tables]
    dropped = {model._meta.db_table for _, model in tables}
    for migration, model, column in columns:
        table = model._meta.db_table
        if table not in dropped:
            found.append((migration, f"{table}.{column}", _rows(connection, table, _has_a_value(connection, table, column))))
    return [Loss(str(migration), what, rows) for migration, what, rows in found if rows]


def refusal(losses: list[Loss]) -> str:
    """Says what would be deleted and what to do instead."""
    lines = [f"  {loss.what}: {_count(loss.rows)} ({loss.migration})" for loss in losses]
    return "\n".join(
        (
            "Going back would delete:",
            *lines,
            "Mostly only the code has to go back, because code of the release before works with the newer tables"
            ' (docs/operations.md, "Going back"). To delete all this, repeat the command with --lose-data.',
        )
    )


def _count(rows: int) -> str:
    if rows > MOST_ROWS:
        return f"more than {MOST_ROWS} rows"
    return "1 row" if rows == 1 else f"{rows} rows"


def _database_operations(operations: Iterable[Any]) -> Iterator[Any]:
    for operation in operations:
        if isinstance(operation, SeparateDatabaseAndState):
            yield from _database_operations(operation.database_operations)
        elif isinstance(operation, CreateModel | AddField):
            yield operation


def _model(apps: Apps, app_label: str, operation: CreateModel | AddField) -> Any:
    name = operation.name if isinstance(operation, CreateModel) else operation.model_name
    return apps.all_models[app_label].get(name.lower())


def _has_a_value(connection: BaseDatabaseWrapper, table: str, column: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute(_DEFAULT, [connection.ops.quote_name(table), column])
        row = cursor.fetchone()
    if row is None:
        return "false"  # the database does not have the column
    name = connection.ops.quote_name(column)
    return f"{name} IS NOT NULL" if row[0] is None else f"{name} IS DISTINCT FROM ({row[0]})"


def _rows(connection: BaseDatabaseWrapper, table: str, condition: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass(%s) IS NOT NULL", [connection.ops.quote_name(table)])
        if not cursor.fetchone()[0]:
            return 0
        some = f"SELECT FROM {connection.ops.quote_name(table)} WHERE {condition} LIMIT {MOST_ROWS + 1}"
        cursor.execute(f"SELECT count(*) FROM ({some}) counted")  # noqa: S608 - our own tables
        return int(cursor.fetchone()[0])
