"""The requests of verbs that another operator has to approve: a list, and a page that decides about one."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _
from unfold.decorators import display

from supervision.approvals import deciding, rights
from supervision.console.bounded_lists import PageAdmin
from supervision.console.shared import person, run_address
from supervision.console.verb_forms import ReasonForm, label_of
from supervision.errors import Refused
from supervision.models import Approval, Run
from supervision.operations import previews

TONES = {"pending": "warning", "approved": "success", "refused": "neutral", "expired": "neutral", "failed": "danger"}


class DecisionForm(ReasonForm):
    """Approve or refuse, and why."""

    decision = forms.ChoiceField(choices=[("approve", "approve"), ("refuse", "refuse")], widget=forms.HiddenInput)


@admin.register(Approval)
class ApprovalAdmin(PageAdmin):
    """Verbs that wait for another operator, and what was decided."""

    empty_means = _("No request: no verb waits for a second operator.")
    seen_with = "supervision.view_run"
    list_display = ["what", "amount", "order", "asked_by", "standing", "decided_by", "age"]
    list_filter = [("state", admin.ChoicesFieldListFilter)]
    ordering = ["-pk"]
    aged_from = "asked_at"
    order_of = attrgetter("order_key")
    takes_posts = True

    @display(description=_("Request"))
    def what(self, obj: Approval) -> str:
        return f"{obj.pk}: {label_of(obj.verb)} {obj.step}".strip()

    @display(description=_("At stake"))
    def amount(self, obj: Approval) -> str:
        return obj.amounts

    @display(description=_("Order"), empty_value="")
    def order(self, obj: Any) -> str:
        return format_html('<span title="{}">{}</span>', obj.order_key, self.called(obj)) if obj.order_key else ""

    @display(description=_("State"), label=TONES)
    def standing(self, obj: Approval) -> tuple[str, Any]:
        return obj.state, obj.get_state_display()

    def show(self, request: HttpRequest, row: Any, /) -> HttpResponse:
        """One request with what it would do; while it waits, the form of another operator."""
        mine = row.asked_by_id == person(request).pk or row.asked_by == person(request).get_username()
        waits = row.state == Approval.State.PENDING
        form = DecisionForm(request.POST if request.method == "POST" else None)
        if request.method == "POST":
            if not rights.may(request.user, "approve"):
                raise PermissionDenied
            if form.is_valid():
                self._decide(request, row, form.cleaned_data)
                return HttpResponseRedirect(request.path)
        run = Run.objects.filter(pk=row.run_id).first()
        return self.page(
            request, "approval.html", title=str(_("Request %(number)s")) % {"number": row.pk}, object=row, original=row, row=row,
            tone=TONES[row.state], age=self.age(row), order=run_address(run.pk) if run else "", mine=mine, name=self.called(row),
            form=form if waits and not mine and rights.may(request.user, "approve") else None,
            changed=waits and run is not None and _changed(row),
        )  # fmt: skip

    def _decide(self, request: HttpRequest, row: Approval, said: dict[str, Any]) -> None:
        decide = deciding.approve if said["decision"] == "approve" else deciding.refuse
        try:
            decide(row.pk, by=person(request), reason=said["reason"])
        except Refused as refusal:
            messages.error(request, str(refusal))
        else:
            messages.success(
                request, _("Approved: it is carried out.") if said["decision"] == "approve" else _("Refused: nothing is done.")
            )


def _changed(row: Approval) -> bool:
    """Whether the order has changed since, so that an approval would fail."""
    return (
        bool(row.plan_version) and row.verb not in ("move", "settle") and previews.seen(previews.as_it_is(row.subject)) != row.plan_version
    )
