"""All stored secrets, and their encryption under the first key: after a new key, and for rows from before the encryption.

A process that is killed leaves each row as it was or encrypted again. A row that another process changed meanwhile is left to the
next pass: each write names the text that it replaces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from django.apps import apps
from django.db import connection, models
from django.db.models.functions import Cast

from supervision.sealing.fields import SealedText
from supervision.sealing.texts import Unopened, Unreadable, is_current, is_sealed, opened, seal

AT_A_TIME = 500  # rows that are read at once


@dataclass(frozen=True)
class Row:
    """One stored secret. write: stores another text in place of `stored`; False if the row holds another one by now.

    open: returns the secret of `stored`, or raises Unreadable.
    """

    pk: Any
    stored: str
    write: Callable[[str], bool]
    open: Callable[[str], str] = opened


@dataclass
class Count:
    """How many secrets there are: in all, in plain text, under an older key. unreadable: by primary key, why no key opens them."""

    all: int = 0
    plain: int = 0
    older: int = 0
    unreadable: dict[Any, str] = field(default_factory=dict)


Store = Callable[[], Iterator[Row]]
_stores: dict[str, Store] = {}


def register(table: str, store: Store) -> None:
    """Add the secrets of a table of a library, which are in no `SealedText`: `store` yields their rows."""
    _stores[table] = store


def stores() -> Iterator[tuple[str, Store]]:
    """All places of secrets, and what reads their rows: `table.column`, or the table of a library."""
    for model in apps.get_models():
        for column in model._meta.fields:
            if isinstance(column, SealedText):
                yield f"{model._meta.db_table}.{column.column}", partial(_column, model, column.name)
    yield from _stores.items()


def allowed(place: str, verbs: str) -> bool:
    """Whether this process's database role has all these rights (`SELECT, UPDATE`) on the table of this place."""
    table = place.partition(".")[0]
    with connection.cursor() as cursor:
        cursor.execute("SELECT bool_and(has_table_privilege(%s, verb)) FROM unnest(%s::text[]) verb", [table, verbs.split(", ")])
        return bool(cursor.fetchone()[0])


def look(store: Store) -> Count:
    """Count the rows of a table. Nothing is written."""
    return _pass(store, write=False)


def seal_again(store: Store) -> Count:
    """Encrypt the rows of a table under the first key. The counts are those from before."""
    return _pass(store, write=True)


def by_pages(rows: models.QuerySet[Any], *values: str) -> Iterator[tuple[Any, ...]]:
    """The primary key and these values of all rows; each page is a statement of its own."""
    last: Any = None
    while page := list((rows.filter(pk__gt=last) if last is not None else rows).order_by("pk").values_list("pk", *values)[:AT_A_TIME]):
        yield from page
        last = page[-1][0]


def _pass(store: Store, *, write: bool) -> Count:
    count = Count()
    for row in store():
        count.all += 1
        try:
            secret = row.open(row.stored)
        except Unreadable as problem:
            count.unreadable[row.pk] = str(problem)
            continue
        if is_current(row.stored):
            continue
        if is_sealed(row.stored):
            count.older += 1
        else:
            count.plain += 1
        if write:
            row.write(seal(secret))
    return count


def _column(model: type[models.Model], name: str) -> Iterator[Row]:
    # The cast shows the stored text, not what the field makes of it.
    raw = model._default_manager.annotate(stored=Cast(name, models.TextField())).exclude(stored="")

    def write(pk: Any, stored: str, text: str) -> bool:
        return bool(raw.filter(pk=pk, stored=stored).update(**{name: Unopened(text)}))

    for pk, stored in by_pages(raw, "stored"):
        yield Row(pk, stored, partial(write, pk, stored))
