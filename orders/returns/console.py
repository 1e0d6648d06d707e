"""The operators' list of returns. Each row leads to the run that carries the return out."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import OuterRef, Q, Subquery
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _
from unfold.decorators import display

from orders.models import Order, Return
from supervision.console.bounded_lists import ReadOnlyAdmin
from supervision.console.run_lists import LABELS, labelled
from supervision.console.shared import run_address
from supervision.models import Run

SEES_RETURNS = "orders.view_order"  # an account that may see orders may see what comes back of them


@admin.register(Return)
class ReturnAdmin(ReadOnlyAdmin):
    """Returns, newest first, with the state of each one's run."""

    seen_with = SEES_RETURNS
    list_display = ["name", "state", "asked_by", "why", "age"]
    list_display_links = None
    ordering = ["-pk"]
    aged_from = "created_at"
    search_fields = ["number"]
    search_help_text = _("number of the return or of the order, or the order's public id")
    empty_means = _("No customer has asked to give goods back.")

    def get_queryset(self, request: HttpRequest) -> Any:
        run = Run.objects.filter(key=OuterRef("public_id"))
        rows = super().get_queryset(request)
        return rows.annotate(run_id=Subquery(run.values("pk")[:1]), run_state=Subquery(run.values("process_state")[:1]))

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> tuple[Any, bool]:
        if not (term := search_term.strip()):
            return queryset, False
        orders = Order.objects.filter(number=term).values_list("public_id", flat=True)[:1]
        return queryset.filter(Q(number=term) | Q(order_key__in=[term, *orders])), False

    @display(description=_("number"))
    def name(self, obj: Any) -> str:
        if obj.run_id is None:  # not yet taken up, or archived
            return str(obj.number)
        return format_html('<a class="sc-link" href="{}">{}</a>', run_address(obj.run_id), obj.number)

    @display(description=_("State"), label=LABELS)
    def state(self, obj: Any) -> tuple[str, Any] | None:
        return None if obj.run_state is None else labelled(obj.run_state)

    @display(description=_("Reason"))
    def why(self, obj: Return) -> str:
        return obj.reason[:80]
