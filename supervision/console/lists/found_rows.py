"""The rows of a filtered list, counted to a bound: how they are read depends on how many there can be.

`FewRows`: the filters leave few rows, or rows that are found from the unfinished runs. One statement reads their keys in order.
Both then read the page's rows by their keys, from `plain`: the list without its filters.
`ErrorFirst`: any number of rows. Those in Error come from the newest runs in Error, the others are read in their own order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.models import Case, IntegerField, Q, QuerySet, When

from supervision.models import Run
from supervision.runtime import humanize
from supervision.states import RunState

COUNTED_UP_TO = 10_000
COUNTED_AHEAD = 250  # rows behind the page that the reader looks at


class Counted(int):
    """A number of rows. A page writes it with the separators of the reader's language."""

    def __str__(self) -> str:
        return humanize.number(int(self))


class AtLeast(Counted):
    """A number of rows when there may be more."""

    def __str__(self) -> str:
        return f"{super().__str__()}+"


class FewRows:
    """Rows in Error first, then the newest, of a list that the filters make short. most: if there are so many, there may be more."""

    ordered = True

    def __init__(
        self, rows: QuerySet[Any], state: str, newest_first: Sequence[str], *, plain: QuerySet[Any], most: int = COUNTED_UP_TO
    ) -> None:
        self._most = most
        rank = Case(When(**{state: RunState.ERROR}, then=0), default=1, output_field=IntegerField())
        self.plain = plain
        self._ordered = rows.order_by(rank.asc(), *newest_first)
        self._keys: list[Any] | None = None

    def keys(self) -> list[Any]:
        """The rows' primary keys in order, up to the bound."""
        if self._keys is None:
            self._keys = list(self._ordered.values_list("pk", flat=True)[:COUNTED_UP_TO])
        return self._keys

    def count(self) -> int:
        """All rows, counted to a bound."""
        found = len(self.keys())
        return AtLeast(found) if found >= self._most else found

    def __getitem__(self, place: slice) -> list[Any]:
        return in_order(self.plain, self.keys()[place])


class ErrorFirst:
    """Runs in Error before all others, newest first in both parts, read through one index each: sorting by a rank
    would read and sort the whole table for every page.

    page_end: the number of the last row on the page; so many and some more are counted.
    """

    ordered = True

    def __init__(self, rows: QuerySet[Any], state: str, newest_first: Sequence[str], *, page_end: int = COUNTED_UP_TO) -> None:
        others = [value.value for value in RunState if value is not RunState.ERROR]
        path = state.removesuffix("process_state")
        self.bound = min(page_end + COUNTED_AHEAD, COUNTED_UP_TO)
        newest = Run.objects.filter(process_state=RunState.ERROR).order_by("-created_at").values_list("pk", flat=True)
        failed = list(newest[: self.bound])
        rows_in_error = rows.filter(Q(**{f"{path}pk__in": failed}) & Q(**{state: RunState.ERROR})) if failed else rows.none()
        self.error = rows_in_error.order_by(*newest_first)
        self.rest = rows.filter(**{f"{state}__in": others}).order_by(*newest_first)
        self.rows = rows
        self._errors: list[Any] | None = None

    def _keys_in_error(self) -> list[Any]:
        if self._errors is None:
            self._errors = list(self.error.values_list("pk", flat=True)[: self.bound])
        return self._errors

    def count(self) -> int:
        """All rows, counted to a bound."""
        found = len(self._keys_in_error())
        found += self.rest.order_by()[: self.bound - found].count() if found < self.bound else 0
        return AtLeast(found) if found == self.bound else found

    def __getitem__(self, place: slice) -> list[Any]:
        start, stop, errors = place.start or 0, place.stop, self._keys_in_error()
        page = in_order(self.rows, errors[start:stop])
        if stop > len(errors):
            page += self.rest[max(0, start - len(errors)) : stop - len(errors)]
        return page


def in_order(rows: QuerySet[Any], keys: Sequence[Any]) -> list[Any]:
    """The rows of these primary keys, in this order."""
    found = {row.pk: row for row in rows.order_by().filter(pk__in=keys)} if keys else {}
    return [found[key] for key in keys if key in found]
