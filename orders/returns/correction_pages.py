"""The console's page that corrects a report on a return: it asks what came, shows what the correction would do, then does it once."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from functools import partial
from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext_lazy as _
from unfold.widgets import UnfoldAdminIntegerFieldWidget

from orders.later_requests import digest_of
from orders.models import Order, Return, ReturnLine
from orders.returns import correcting, goods
from orders.returns.answers import ReturnView
from orders.services import InvalidOrder, KeyReused
from supervision.approvals import rights
from supervision.console.run_lists import RunConsole
from supervision.console.verb_forms import ReasonForm
from supervision.errors import AwaitsApproval, Refused, UnknownRun
from supervision.states import RunState


class CorrectionForm(ReasonForm):
    """What came of each line, and why the report was wrong. shown: names the plan that the operator has seen; empty at first."""

    key = forms.CharField(max_length=64, initial=partial(secrets.token_urlsafe, 16), widget=forms.HiddenInput)
    shown = forms.CharField(max_length=64, required=False, widget=forms.HiddenInput)

    def __init__(self, data: Any, lines: Sequence[ReturnLine]) -> None:
        super().__init__(data)
        self.lines = lines
        for line in lines:
            words = {"name": line.name, "sku": line.sku, "price": line.unit_price, "most": line.quantity}
            for name, label, value in (
                ("accepted", _("%(name)s (%(sku)s, %(price)s): accepted of %(most)s"), line.accepted),
                ("refused", _("%(name)s (%(sku)s, %(price)s): refused of %(most)s"), line.refused),
            ):
                self.fields[f"{name}-{line.pk}"] = forms.IntegerField(
                    label=label % words, min_value=0, max_value=line.quantity, initial=value, widget=UnfoldAdminIntegerFieldWidget
                )
        self.order_fields([*(name for name in self.fields if "-" in name), "reason"])

    def report(self) -> dict[str, Any]:
        """The report that the form says."""
        said, lines = self.cleaned_data, []
        for line in self.lines:
            came = {name: said[f"{name}-{line.pk}"] for name in ("accepted", "refused")}
            lines.append({"sku": line.sku, "unit_price": str(line.unit_price), **came})
        return {"lines": lines}


class CorrectionPages(RunConsole):
    """Adds the page of a correction to those of an order."""

    def get_urls(self) -> list[URLPattern]:
        guard = self.admin_site.admin_view
        return [
            path("<int:object_id>/correct/<str:back>/", guard(self.correct_view), name="orders_order_correct"),
            *super().get_urls(),
        ]

    def correct_view(self, request: HttpRequest, object_id: int, back: str) -> HttpResponse:
        """Correct the report on a return: GET asks, the first POST shows what it would do, the next one does it once."""
        if not rights.may(request.user, ""):
            raise PermissionDenied
        order: Order = self.row(request, object_id)
        row = Return.objects.filter(public_id=back, order_key=order.public_id).first()
        home = reverse("admin:orders_order_change", args=[order.pk])
        if row is None:
            messages.error(request, _("This order has no return %(id)s.") % {"id": back})
            return HttpResponseRedirect(home)
        form = CorrectionForm(request.POST if request.method == "POST" else None, list(row.lines.order_by("pk")))
        lead, button = str(_("Say what really came. Nothing is changed before you have seen what it does.")), _("Show what it does")
        if form.is_valid():
            try:
                plan = correcting.plan(back, form.report())
                now = digest_of(form.report(), plan.version, plan.paid)
                if form.cleaned_data["shown"] == now:
                    said = {"reason": form.cleaned_data["reason"], "idempotency_key": form.cleaned_data["key"]}
                    correcting.correct(back, form.report(), by=request.user, version=plan.version, **said)
                    messages.success(request, _("The report is corrected."))
                    return HttpResponseRedirect(home)
            except goods.Unreadable as problem:
                form.add_error(None, problem.problem)
            except AwaitsApproval as waits:
                messages.warning(request, str(waits))
                return HttpResponseRedirect(home)
            except (InvalidOrder, KeyReused, Refused, UnknownRun) as refusal:
                form.add_error(None, str(refusal))
            else:
                data = request.POST.copy()
                data["shown"] = now
                form, lead, button = CorrectionForm(data, form.lines), plan.in_words(), _("Correct the report")
        words: dict[str, Any] = {
            "title": _("Correct the report on return %(number)s") % {"number": row.number},
            "lead": lead,
            "button": button,
        }
        return self.page(request, "ask.html", subtitle=str(order), object=order, form=form, back=home, dangerous=bool(form.data), **words)


def correctable(order: Order, returns: Sequence[ReturnView]) -> list[tuple[str, str]]:
    """The numbers of the returns of this order whose report has come, and the pages that correct it."""
    open_to = [one for one in returns if one.worth is not None and one.process_state not in (RunState.CANCELLED, RunState.COMPENSATING)]
    return [(one.row.number, reverse("admin:orders_order_correct", args=[order.pk, one.row.public_id])) for one in open_to]
