"""The operators' list of what the payment service told by webhooks. Read-only: an event is a reason to look, and the shop has looked.

An event has no personal data: its kind, the service's ids and the order's public id. Events are deleted after `events.KEPT`.
"""

from __future__ import annotations

import re
from typing import Any

from django.contrib import admin
from django.db.models import Exists, Max, OuterRef, Q, QuerySet, Subquery
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _
from unfold.decorators import display

from orders.models import Order, PaymentEvent
from orders.payments.events import KINDS
from supervision.console.bounded_lists import ReadOnlyAdmin
from supervision.console.shared import retold, run_address

SEES_EVENTS = "orders.view_order"  # an account that may see orders may see what was told of their payments
NEWEST = 10_000  # the filter by order reads this many events at most
_NUMBER = re.compile(r"[0-9]{3}-[0-9]{3}-[0-9]{3}(-[0-9]+)?")


class KindFilter(admin.SimpleListFilter):
    """By what has happened at the payment service."""

    title, parameter_name = _("kind"), "kind"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [(kind, kind) for kind in KINDS]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(kind=self.value()) if self.value() else queryset


class OrderFilter(admin.SimpleListFilter):
    """By whether the shop knows the order, among the newest events: the oldest ones would cost a look at each."""

    title, parameter_name = _("order"), "order"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [("known", _("Known order")), ("unmatched", _("No order, or an unknown one"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() not in ("known", "unmatched"):
            return queryset
        newest = PaymentEvent.objects.aggregate(newest=Max("pk"))["newest"] or 0
        known = Q(Exists(Order.objects.filter(public_id=OuterRef("order_key"))))
        return queryset.filter(known if self.value() == "known" else ~known, pk__gt=newest - NEWEST)


@admin.register(PaymentEvent)
class PaymentEventAdmin(ReadOnlyAdmin):
    """Payment events, the newest first, each with its order and what became of it."""

    seen_with = SEES_EVENTS
    list_display = ["kind", "of_order", "intent", "event_id", "became", "age"]
    list_display_links = None
    list_filter = [KindFilter, OrderFilter]
    ordering = ["-pk"]
    aged_from = "received_at"
    search_fields = ["event_id"]
    search_help_text = _("event, payment, order number, or the order's public id")
    found_by = ("event_id", "intent", "order_key")
    empty_means = _("The payment service has told nothing in the last 30 days. Are its webhooks set up?")

    def get_queryset(self, request: HttpRequest) -> Any:
        order = Order.objects.filter(public_id=OuterRef("order_key"))
        rows = super().get_queryset(request)
        return rows.annotate(run_id=Subquery(order.values("run_id")[:1]), number=Subquery(order.values("number")[:1]))

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> tuple[Any, bool]:
        if _NUMBER.fullmatch(search_term.strip()):
            orders = Order.objects.filter(number=search_term.strip()).values_list("public_id", flat=True)[:1]
            return queryset.filter(order_key__in=list(orders)), False
        return super().get_search_results(request, queryset, search_term)

    @display(description=_("order"))
    def of_order(self, obj: Any) -> Any:
        if obj.run_id is not None:
            return format_html('<a class="sc-link" href="{}">{}</a>', run_address(obj.run_id), obj.number)
        return _("unknown: %(key)s") % {"key": obj.order_key} if obj.order_key else _("none named")

    @display(description=_("What became of it"))
    def became(self, obj: Any) -> Any:
        """The outcome; for an event without an order of ours, what an operator can do."""
        if obj.applied_at is None:
            return _("not looked at yet: the outbox tries again")
        if obj.run_id is None and obj.order_key:
            return _("The shop has no such order: compare with manage.py reconcile --service payment")
        return retold(obj.outcome)
