"""The requests of API clients: a list with filters, and a page for each request."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from operator import attrgetter
from typing import Any

from django.contrib import admin
from django.contrib.auth import get_user_model
from django.db.models import Q, Sum
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse
from django.utils.text import Truncator
from django.utils.translation import gettext_lazy as _
from unfold.decorators import display

from supervision import conf
from supervision.admin.requestlog.narrowing import RequestFilters
from supervision.console.bounded_lists import BoundedChangeList, PageAdmin
from supervision.console.run_filters import ListFilters
from supervision.console.shared import run_address
from supervision.insight import directory
from supervision.models import ApiRequest
from supervision.requestlog import recording
from supervision.runtime import humanize

TONES = {"2": "success", "3": "info", "4": "warning", "5": "danger", "0": None}


class RequestChangeList(BoundedChangeList):
    """Reads the names of the page's accounts in one query."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        names = names_of(row.account_id for row in self.result_list)
        for row in self.result_list:
            row.shown_account = names.get(row.account_id, "")


def names_of(accounts: Iterable[int | None]) -> dict[int | None, str]:
    """The names of these accounts. One that is gone, or whose name is a mail address, has a number."""
    wanted = {number for number in accounts if number is not None}
    rows = get_user_model()._default_manager.filter(pk__in=wanted) if wanted else ()
    names = {row.pk: row.get_username() for row in rows}
    return {
        number: names[number] if number in names and "@" not in names[number] else str(_("account %(number)d") % {"number": number})
        for number in wanted
    }


@admin.register(ApiRequest)
class ApiRequestAdmin(PageAdmin):
    """What API clients changed and what they were refused, the newest first."""

    seen_with = "supervision.view_run"
    list_display = ["moment", "asked", "order", "answered", "problem", "took", "account", "repeated"]
    list_filter = [ListFilters]
    filters = RequestFilters()
    run_path = ""
    list_filter_submit = False
    list_before_template = "admin/supervision/requests_missing.html"
    ordering = ["-pk"]
    search_fields = ["=request_id"]
    search_help_text = _("request id, number or public id of an order")
    order_of = attrgetter("order_key")

    @property
    def empty_means(self) -> Any:  # type: ignore[override]
        if not recording.is_on():
            return _("The request log is off: REQUEST_LOG_DAYS is 0.")
        words = _("No API client has changed anything or was refused anything in %(days)d days.")
        return words % {"days": conf.get().keep_requests.days}

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[RequestChangeList]:
        return RequestChangeList

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        of_today = ApiRequest.objects.filter(missing__gt=0, at__gt=Now() - timedelta(days=1))
        missing = of_today.aggregate(Sum("missing"))["missing__sum"] or 0
        page: HttpResponse = super().changelist_view(request, {**(extra_context or {}), "missing": missing})
        return page

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> tuple[Any, bool]:
        if not (term := search_term.strip()):
            return queryset, False
        found = directory.find(term)
        return queryset.filter(Q(request_id=term) | Q(order_key=term if found is None else found.key)), False

    @display(description=_("Time"))
    def moment(self, obj: ApiRequest) -> str:
        return humanize.moment(obj.at, exact=True)

    @display(description=_("Request"))
    def asked(self, obj: ApiRequest) -> str:
        if obj.missing:
            return str(_("%(n)d requests are missing here.") % {"n": obj.missing})
        # The column beside it has the order's number. The request's own page has the whole path.
        return Truncator(str(obj).replace(f"/{obj.order_key}/", "/…/") if obj.order_key else str(obj)).chars(70)

    @display(description=_("Order"), empty_value="")
    def order(self, obj: ApiRequest) -> str | None:
        return self.called(obj) or None

    @display(description=_("Status"), label=TONES)
    def answered(self, obj: ApiRequest) -> tuple[str, Any]:
        return str(obj.kind), obj.status or "–"

    @display(description=_("Problem"), empty_value="")
    def problem(self, obj: ApiRequest) -> str | None:
        return obj.code or None

    @display(description=_("Took"), empty_value="")
    def took(self, obj: ApiRequest) -> str | None:
        return None if obj.missing else f"{obj.milliseconds:.0f} ms"

    @display(description=_("Account"), empty_value="")
    def account(self, obj: Any) -> str | None:
        return obj.shown_account or None

    @display(description=_("Key"), empty_value="")
    def repeated(self, obj: ApiRequest) -> str | None:
        return obj.get_key_display() or None

    def show(self, request: HttpRequest, row: ApiRequest, /) -> HttpResponse:
        """One request, with the order that it was about."""
        order = directory.find(row.order_key) if row.order_key else None
        return self.page(
            request, "request.html", title=Truncator(str(row)).chars(100), object=row, original=row, row=row,
            tone=TONES.get(str(row.kind)) or "neutral", account=names_of([row.account_id]).get(row.account_id, ""),
            order=order, order_at=run_address(order.run_id) if order is not None and order.run_id else "",
            of_order=ApiRequest.objects.filter(order_key=row.order_key).count() if row.order_key else 0,
        )  # fmt: skip
