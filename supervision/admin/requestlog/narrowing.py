"""The filters of the list of API requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib.auth import get_user_model
from django.db.models import Max, Q, QuerySet
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from supervision.insight import directory
from supervision.insight.filters import Field, Filters, text
from supervision.models import ApiRequest
from supervision.requestlog.entries import CHANGES

LOOKED_AT = 100_000  # a part of a path is looked for in so many of the newest requests
KINDS = {
    "2": gettext_lazy("accepted (2xx)"),
    "3": gettext_lazy("redirected (3xx)"),
    "4": gettext_lazy("refused (4xx)"),
    "5": gettext_lazy("failed (5xx)"),
}
METHODS = sorted({*CHANGES, "GET"})


def kind(said: str) -> int:
    """The first digit of a status."""
    if said not in KINDS:
        raise ValueError(_("Expected one of: %(words)s.") % {"words": ", ".join(KINDS)})
    return int(said)


def method(said: str) -> str:
    """An HTTP method, in any letters."""
    return text(said).upper()


class RequestFilters(Filters):
    """By the answer, by what was asked for, and by who asked."""

    model = ApiRequest
    newest_first = ("-pk",)
    unfinished_only = frozenset()
    fields = {
        "kind": Field(gettext_lazy("Status"), kind),
        "code": Field(gettext_lazy("Problem"), text, help=gettext_lazy("the code in the answer, exactly")),
        "method": Field(gettext_lazy("Method"), method),
        "path": Field(gettext_lazy("Path"), text, help=gettext_lazy("a part of it, in the newest 100,000 requests")),
        "account": Field(gettext_lazy("Account"), text, help=gettext_lazy("its name or number")),
        "request_id": Field(gettext_lazy("Request id"), text, help=gettext_lazy("the answer's header Request-Id")),
        "order": Field(gettext_lazy("Order"), text, help=gettext_lazy("its number or public id")),
    }
    offers = {"kind": list(KINDS.items()), "method": [(name, name) for name in METHODS]}

    def narrow(self, rows: QuerySet[Any], values: Mapping[str, Any], *, rare: bool = False) -> tuple[QuerySet[Any], bool]:
        """The rows that fit all values, as one statement."""
        return self.by(rows, values), False

    def by_kind(self, rows: QuerySet[Any], value: int) -> QuerySet[Any]:
        """The kind of status."""
        return rows.filter(kind=value)

    def by_code(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        """The problem's code."""
        return rows.filter(code=value)

    def by_method(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        """The method."""
        return rows.filter(method=value)

    def by_path(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        """A part of the path, in the newest requests: no index has parts."""
        newest = ApiRequest.objects.aggregate(Max("pk"))["pk__max"] or 0
        return rows.filter(pk__gt=newest - LOOKED_AT, path__contains=value)

    def by_account(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        """The account of this name; a number is also the account's own."""
        accounts = get_user_model()._default_manager
        named = Q(**{accounts.model.USERNAME_FIELD: value})
        number = int(value) if value.isascii() and value.isdecimal() and len(value) <= 9 else None
        return rows.filter(account_id__in=[*accounts.filter(named).values_list("pk", flat=True), *([] if number is None else [number])])

    def by_request_id(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        """One request."""
        return rows.filter(request_id=value)

    def by_order(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        """What was asked for one order."""
        found = directory.find(value)
        return rows.filter(order_key=found.key if found is not None else value)
