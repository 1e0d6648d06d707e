"""Lists that stay cheap for tables of any size: counts stop at a bound, and no query sorts a whole table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django.contrib.admin import ShowFacets, SimpleListFilter
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db import connection
from django.db.models import Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.template.response import TemplateResponse
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _
from unfold.admin import ModelAdmin
from unfold.decorators import display
from unfold.views import ChangeList

from supervision.console.lists.found_rows import COUNTED_UP_TO, Counted
from supervision.console.shared import may_operate, since
from supervision.insight import directory
from supervision.runtime.humanize import age_in_words

# The filters that the side bar's own links set. A list that is empty under one of them says what that means.
USUAL_FILTERS = {
    ("open", "yes"),
    ("waiting", "yes"),
    ("undelivered", "yes"),
    ("active", "yes"),
    ("state", "failing"),
    ("state", "pending"),
}


class CountedChangeList(ChangeList):
    """A list that writes how many rows it has with separators between thousands."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        for name in ("result_count", "full_result_count"):
            found = getattr(self, name)
            setattr(self, name, Counted(found) if type(found) is int else found)  # `AtLeast` is kept


class CountedAdmin(ModelAdmin):
    """An admin with such a list."""

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return CountedChangeList


class OwnChangesAdmin(ModelAdmin):
    """An admin whose form saves only the fields that this operator changed: another one may have saved the others since it was opened."""

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """Let the page keep what the form showed, so that a field counts as changed only if this operator changed it."""
        return super().formfield_for_dbfield(db_field, request, **{**kwargs, "show_hidden_initial": True})

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        if change:
            obj.save(update_fields=self.changed(form))
        else:
            obj.save()

    def changed(self, form: Any) -> list[str]:
        """The columns that this form writes."""
        return list(form.changed_data)


class LockedAdmin(OwnChangesAdmin):
    """Locks the row before its form is looked at, so that what the form was checked against is still so when it is saved."""

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        found = super().get_object(request, object_id, from_field)
        if found is None or request.method != "POST" or not connection.in_atomic_block:
            return found
        return self.get_queryset(request).select_for_update(of=("self",), no_key=True).filter(pk=found.pk).first()


class BoundedChangeList(CountedChangeList):
    """A list that never offers to count or show everything."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        if not self.has_active_filters and not self.query:
            self.full_result_count = self.result_count
        if getattr(self.model_admin, "order_of", None) is not None:
            self._name_orders(self)

    def _name_orders(self, shown: Any) -> None:
        """Give the page's rows what people call their orders, as `order_name`."""
        shown.result_list = rows = list(shown.result_list)
        keys = [self.model_admin.order_of(row) for row in rows]
        names = directory.names(key for key in keys if key)
        for row, key in zip(rows, keys, strict=True):
            row.order_name = names.get(key, "")

    @property
    def empty_words(self) -> Any:
        """What it means that the list is empty, for its page."""
        if self.query:
            return _("No entry matches the search.")
        if set(self.params.items()) - USUAL_FILTERS:
            return _("No entry matches these filters.")
        return self.model_admin.empty_means


class Labelled(tuple[str, Any]):
    """A value that gives a column its colour, and its words. On the row's own page, which has no colours, it is the words alone."""

    def __str__(self) -> str:
        return str(self[1])


class FlagFilter(SimpleListFilter):
    """A filter with yes and no. Yes: the rows whose `field` is still null."""

    field: str
    yes: Any
    no: Any

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [("yes", self.yes), ("no", self.no)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() not in ("yes", "no"):
            return queryset
        return queryset.filter(**{f"{self.field}__isnull": self.value() == "yes"})


class OpenFilter(FlagFilter):
    title, parameter_name, field = _("state"), "open", "closed_at"
    yes, no = _("Open"), _("Closed")


class ReadOnlyAdmin(ModelAdmin):
    """Rows that the engine writes and people only view. They are counted up to a bound only.

    aged_from: the column from which `age` counts. found_by: the columns that may equal what is typed into the search box.
    order_of: the public id of a row's order, if the list names orders. empty_means: what it means that there is no row.
    one_line: on a phone a row is one line, with its name, state and money. seen_with: the permission that shows the list, where
    it is not the model's own.
    """

    seen_with = ""
    aged_from = ""
    found_by: Sequence[str] = ()
    order_of: Callable[[Any], str] | None = None
    empty_means: Any = _("There is no entry.")
    one_line = False
    sortable_by: Sequence[str] = ()
    show_full_result_count = False
    list_per_page = 50
    list_max_show_all = 0
    show_facets = ShowFacets.NEVER  # each facet would cost one more count

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return BoundedChangeList

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm(self.seen_with) if self.seen_with else super().has_view_permission(request, obj)

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Whether the console's index names the list: where it shows anything."""
        return self.has_view_permission(request)

    def has_add_permission(self, request: HttpRequest, *args: Any) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_operate_permission(self, request: HttpRequest) -> bool:
        """Whether this account may act. Django calls it before it offers an action."""
        return may_operate(request)

    def get_queryset(self, request: HttpRequest) -> Any:
        rows = super().get_queryset(request)
        return rows.annotate(console_age=since(self.aged_from)) if self.aged_from else rows

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> tuple[Any, bool]:
        if not self.found_by:
            return super().get_search_results(request, queryset, search_term)  # type: ignore[no-any-return]
        term = search_term.strip()
        return (queryset.filter(Q(*((column, term) for column in self.found_by), _connector=Q.OR)) if term else queryset), False

    @display(description=_("Select"))
    def action_checkbox(self, obj: Any) -> str:
        """The box that selects a row; its name says which one."""
        name = _("Select %(row)s") % {"row": obj}
        box = '<input type="checkbox" name="_selected_action" value="{}" class="action-select" aria-label="{}">'
        return format_html(box, obj.pk, name)

    def called(self, row: Any) -> str:
        """What people call the order of this row; empty if it has none. A list reads it for all its rows at once."""
        if not hasattr(row, "order_name"):
            key = self.order_of(row) if self.order_of else ""
            row.order_name = directory.names([key])[key] if key else ""
        return str(row.order_name)

    @display(description=_("Age"))
    def age(self, obj: Any) -> str:
        return age_in_words(obj.console_age)

    def row(self, request: HttpRequest, object_id: Any) -> Any:
        """The row that a page of its own shows."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        row = self.get_object(request, str(object_id))
        if row is None:
            raise Http404
        return row

    def page(self, request: HttpRequest, template: str, status: int = 200, **context: Any) -> HttpResponse:
        """A page of the console with this context."""
        context = {**self.admin_site.each_context(request), "opts": self.opts, **context}
        return TemplateResponse(request, f"admin/supervision/{template}", context, status=status)

    def get_paginator(self, request: HttpRequest, queryset: Any, per_page: int, *args: Any, **kwargs: Any) -> Paginator:
        return BoundedPaginator(queryset, per_page)


class PageAdmin(ReadOnlyAdmin):
    """An admin that shows each row on a page of its own. takes_posts: the page has a form."""

    takes_posts = False

    def show(self, request: HttpRequest, row: Any, /) -> HttpResponse:
        """The page of this row."""
        raise NotImplementedError

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        row = self.row(request, object_id)
        if not self.takes_posts and request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET"])
        return self.show(request, row)


class BoundedPaginator(Paginator):
    """Counts up to a bound only. To find older rows, an operator filters or searches."""

    @property
    def count(self) -> int:
        if not hasattr(self, "_counted"):
            rows: Any = self.object_list
            bounded = isinstance(rows, QuerySet)
            self._counted: int = rows.order_by()[:COUNTED_UP_TO].count() if bounded else rows.count()
        return self._counted
