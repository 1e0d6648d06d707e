"""Lists that stay cheap for tables of any size: counts stop at a bound, and no query sorts a whole table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib.admin import ShowFacets
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest
from unfold.admin import ModelAdmin
from unfold.views import ChangeList

from supervision.states import RunState

COUNTED_UP_TO = 10_000


class BoundedChangeList(ChangeList):
    """A list that never offers to count or show everything."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        if not self.has_active_filters and not self.query:
            self.full_result_count = self.result_count


class ReadOnlyAdmin(ModelAdmin):
    """Rows that the engine writes and people only view. They are counted up to a bound only."""

    show_full_result_count = False
    list_per_page = 50
    list_max_show_all = 0
    show_facets = ShowFacets.NEVER  # each facet would cost one more count

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return BoundedChangeList

    def has_add_permission(self, request: HttpRequest, *args: Any) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def get_paginator(self, request: HttpRequest, queryset: Any, per_page: int, *args: Any, **kwargs: Any) -> Paginator:
        return BoundedPaginator(queryset, per_page)


class BoundedPaginator(Paginator):
    """Counts up to a bound only. To find older rows, an operator filters or searches."""

    @property
    def count(self) -> int:
        if not hasattr(self, "_counted"):
            rows: Any = self.object_list
            bounded = isinstance(rows, QuerySet)
            self._counted: int = rows.order_by()[:COUNTED_UP_TO].count() if bounded else rows.count()
        return self._counted


class ErrorFirst:
    """Runs in Error before all others, newest first in both parts, read through one index each: sorting by a rank
    would read and sort the whole table for every page."""

    ordered = True

    def __init__(self, rows: QuerySet[Any], state: str, newest_first: Sequence[str]) -> None:
        others = [value.value for value in RunState if value is not RunState.ERROR]
        self.error = rows.filter(**{state: RunState.ERROR}).order_by(*newest_first)
        self.rest = rows.filter(**{f"{state}__in": others}).order_by(*newest_first)
        self._errors: int | None = None

    def _count_errors(self) -> int:
        if self._errors is None:
            self._errors = self.error.order_by()[:COUNTED_UP_TO].count()
        return self._errors

    def count(self) -> int:
        """All rows, counted to a bound."""
        left = COUNTED_UP_TO - self._count_errors()
        return self._count_errors() + (self.rest.order_by()[:left].count() if left > 0 else 0)

    def __getitem__(self, place: slice) -> list[Any]:
        start, stop, errors = place.start or 0, place.stop, self._count_errors()
        page = list(self.error[start : min(stop, errors)]) if start < errors else []
        if stop > errors:
            page += self.rest[max(0, start - errors) : stop - errors]
        return page
