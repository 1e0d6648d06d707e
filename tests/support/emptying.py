"""Empty the database after a test with real commits, at the price of a few rows.

Django's flush truncates every table, then makes content types, permissions, groups and periodic tasks anew, which takes longer than
most tests. Here a process does that once. From then on it deletes the rows that a test wrote, and puts back what it changed.
"""

from __future__ import annotations

from typing import Any

from django.contrib.contenttypes.models import ContentType
from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.test import TransactionTestCase

from supervision import testing

flush = TransactionTestCase._fixture_teardown  # type: ignore[attr-defined]  # the stubs leave it out
# By the database's name: the rows of each table after the first flush, as their digest and as JSON; the statement that looks for
# changes. It names all tables, so planning it takes longer than executing it: it is prepared.
_usual: dict[str, dict[str, tuple[str, str]]] = {}
_looks: dict[str, str] = {}


def empty_as_flush_does(case: Any) -> None:
    """Leave the rows that a flush leaves, in every database of the test."""
    mine = [connections[alias] for alias in case._databases_names(include_mirrors=False)]
    if not all(str(one.settings_dict["NAME"]) in _usual for one in mine):
        flush(case)
        _usual.update({str(one.settings_dict["NAME"]): _rows(one) for one in mine if _may_leave_triggers_out(one)})
    else:
        for one in mine:
            _put_back(one, _usual[str(one.settings_dict["NAME"])])
    for one in mine:
        testing.renew_session(one)


def _may_leave_triggers_out(one: BaseDatabaseWrapper) -> bool:
    with one.cursor() as cursor:
        cursor.execute("SELECT rolsuper FROM pg_roles WHERE rolname = current_user")
        return bool(cursor.fetchone()[0])


def _look(one: BaseDatabaseWrapper, usual: dict[str, tuple[str, str]]) -> str:
    """A statement for the digest of each table that has usual rows. Of the others only whether they have rows: '' or None."""
    digest = "SELECT '{0}', md5(string_agg(t::text, ' ' ORDER BY t::text)) FROM {0} t"
    rows = "SELECT '{0}', CASE WHEN EXISTS (SELECT FROM {0}) THEN '' END"
    tables = one.introspection.django_table_names(only_existing=True, include_views=False)
    return " UNION ALL ".join((digest if table in usual else rows).format(table) for table in tables)


def _answers(one: BaseDatabaseWrapper, look: str) -> dict[str, str | None]:
    one.ensure_connection()
    return dict(one.connection.execute(look, prepare=True).fetchall())


def _rows(one: BaseDatabaseWrapper) -> dict[str, tuple[str, str]]:
    filled = [table for table, some in _answers(one, _look(one, {})).items() if some is not None]
    kept = {}
    with one.cursor() as cursor:
        for table in filled:
            cursor.execute(f"SELECT md5(string_agg(t::text, ' ' ORDER BY t::text)), jsonb_agg(to_jsonb(t))::text FROM {table} t")  # noqa: S608
            kept[table] = cursor.fetchone()
    return kept


def _put_back(one: BaseDatabaseWrapper, usual: dict[str, tuple[str, str]]) -> None:
    name = str(one.settings_dict["NAME"])
    if name not in _looks:
        _looks[name] = _look(one, usual)
    found = _answers(one, _looks[name])
    changed = [table for table, digest in found.items() if digest != usual.get(table, (None,))[0]]
    if not changed:
        return
    with transaction.atomic(using=one.alias), one.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")  # no trigger runs, as in TRUNCATE
        for table in changed:
            cursor.execute(f"DELETE FROM {table}")  # noqa: S608 - the names come from the models
            if table in usual:
                cursor.execute(f"INSERT INTO {table} SELECT * FROM jsonb_populate_recordset(NULL::{table}, %s)", [usual[table][1]])  # noqa: S608
    if "django_content_type" in changed:
        ContentType.objects.clear_cache()
