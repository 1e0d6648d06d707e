"""The page on which an operator changes the lines of an order: first what they are, then what would change, then it is done."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.loader import render_to_string
from django.urls import URLPattern, path, reverse
from django.utils.safestring import SafeString
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _
from unfold.widgets import UnfoldAdminIntegerFieldWidget

from orders.desk import OrderDesk, money
from orders.edits import changing, codes
from orders.edits.lines import Change, flat
from orders.models import Order
from orders.services import Conflict, InvalidOrder
from supervision.approvals import rights
from supervision.console.shared import person
from supervision.console.verb_forms import ReasonForm
from supervision.errors import ChangedMeanwhile
from supervision.states import RunState


class LinesForm(ReasonForm):
    """How many pieces of each product are wanted, and why. seen: the preview that was shown."""

    seen = forms.CharField(required=False, widget=forms.HiddenInput)

    def __init__(self, data: Mapping[str, Any] | None, lines: Sequence[Mapping[str, Any]], currency: str) -> None:
        super().__init__(data)
        self.skus = [str(line["sku"]) for line in lines]
        for number, line in enumerate(lines):
            pieces = int(line["quantity"])
            self.fields[f"line-{number}"] = forms.IntegerField(
                label=f"{line['name']} ({line['sku']}, {money(Decimal(line['unit_price']), currency)})",
                initial=pieces,
                min_value=0,
                max_value=pieces,
                widget=UnfoldAdminIntegerFieldWidget(),
            )
        self.order_fields([f"line-{number}" for number in range(len(lines))])

    def wanted(self) -> list[dict[str, Any]]:
        """The quantities of those lines that were changed."""
        fields = [(sku, f"line-{number}") for number, sku in enumerate(self.skus)]
        return [{"sku": sku, "quantity": self.cleaned_data[name]} for sku, name in fields if name in self.changed_data]


class LinesDesk(OrderDesk):
    """Adds the page, and its button on the page of an order whose lines can be changed."""

    def get_urls(self) -> list[URLPattern]:
        page = path("<int:object_id>/lines/", self.admin_site.admin_view(self.lines_view), name="orders_order_lines")
        return [page, *super().get_urls()]

    def panels(self, request: HttpRequest, obj: Order, /) -> Sequence[SafeString]:
        shown = [*super().panels(request, obj)]
        open_still = self.run_of(obj).process_state in (RunState.ERROR, RunState.PROCESSING, RunState.PENDING)
        if open_still and rights.may(request.user, codes.VERB) and not changing.why_not(obj.public_id):
            context = {"address": reverse("admin:orders_order_lines", args=[obj.pk])}
            shown.insert(0, render_to_string("admin/orders/_change_lines.html", context, request))
        return shown

    def lines_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        """GET shows the lines; the first POST shows what would change, and the second, of the same, changes it."""
        order = self._to_act_on(request, object_id, codes.VERB)
        back = self._address("change", order.pk)
        if refusal := changing.why_not(order.public_id):
            messages.error(request, refusal)
            return HttpResponseRedirect(back)
        payload = self.run_of(order).payload
        form = LinesForm(request.POST if request.method == "POST" else None, payload["lines"], order.currency)
        lead = _("Nothing is charged yet. Say how many pieces stay; with 0 the line is removed.")
        words: dict[str, Any] = {"lead": lead, "button": _("Look")}
        if form.is_valid():
            try:
                change, version = changing.preview(order.public_id, form.wanted())
            except (InvalidOrder, Conflict) as wrong:
                for problem in _said(wrong):
                    form.add_error(None, problem)
            else:
                mark = hashlib.sha256(f"{version} {change}".encode()).hexdigest()
                if form.cleaned_data["seen"] == mark:
                    return self._ask(request, order, form, lambda said: _act(order, form, version, change.before, request), **words)
                form = LinesForm(request.POST.dict() | {"seen": mark}, payload["lines"], order.currency)
                words = {"lead": in_words(change), "button": _("Change the lines"), "dangerous": True}
        return self.page(
            request, "ask.html", title=_("Change the lines"), subtitle=str(order), object=order, form=form, back=back, **words
        )  # fmt: skip


def _act(order: Order, form: LinesForm, version: str, total: Decimal, request: HttpRequest) -> Any:
    facts = {"lines": form.wanted(), "reason": form.cleaned_data["reason"], "plan_version": version, "total": total}
    try:
        changing.change_lines(order.public_id, by=person(request), **facts)
    except ChangedMeanwhile as moved:
        messages.error(request, str(moved))
        return ""
    return _("The lines are changed.")


def in_words(change: Change) -> str:
    """What would change, and what it comes to."""
    told = [
        gettext("%(sku)s: %(after)d instead of %(before)d.") % {"sku": sku, "after": after, "before": before}
        for sku, (before, after) in change.pieces.items()
    ]
    freed = sum(before - after for before, after in change.pieces.values())
    goes_back = ngettext("%(n)d piece goes back on the shelf.", "%(n)d pieces go back on the shelf.", freed) % {"n": freed}
    totals = {"total": money(change.total, change.currency), "before": money(change.before, change.currency)}
    total = gettext("The order costs %(total)s instead of %(before)s. Nothing is to be paid back.") % totals
    return " ".join([*told, goes_back, total])


def _said(wrong: InvalidOrder | Conflict) -> list[str]:
    return [wrong.message] if isinstance(wrong, Conflict) else flat(wrong.errors)
