"""The console's page Privacy: erasures with their progress, and the page on which operators export or erase a person."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext_lazy as _
from unfold.decorators import display
from unfold.widgets import UnfoldAdminEmailInputWidget, UnfoldAdminTextInputWidget, UnfoldBooleanWidget

from orders.models import Erasure
from orders.privacy import erasing, people
from orders.privacy.own_pages import zipped
from supervision.console.bounded_lists import ReadOnlyAdmin
from supervision.console.shared import person as account_of
from supervision.errors import Refused
from supervision.operations.audit_log import log_all

ERASES, EXPORTS = "orders.erase_person", "orders.export_person"


def sees_erasures(request: HttpRequest) -> str:
    """The right by which this account sees the page."""
    return ERASES if request.user.has_perm(ERASES) else EXPORTS


class PersonForm(forms.Form):
    """The person, and for an erasure the reason and the consent to wait."""

    email = forms.EmailField(label=_("E-mail"), widget=UnfoldAdminEmailInputWidget)
    reason = forms.CharField(
        label=_("Reason"), required=False, max_length=erasing.LONGEST_REASON, widget=UnfoldAdminTextInputWidget,
        help_text=_("For an erasure. It is kept."),
    )  # fmt: skip
    when_ended = forms.BooleanField(label=_("Wait for orders that have not ended"), required=False, widget=UnfoldBooleanWidget)


@admin.register(Erasure)
class ErasureAdmin(ReadOnlyAdmin):
    """Erasures, newest first. They name no one."""

    list_display = ["number", "progress", "asked_by", "reason", "asked_at", "done_at"]
    list_display_links = None
    ordering = ["-pk"]
    empty_means = _("No person was erased.")
    change_list_template = "admin/orders/erasures.html"

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return request.user.has_perm(sees_erasures(request))

    @display(description=_("number"))
    def number(self, obj: Erasure) -> str:
        return str(obj.pk)

    @display(description=_("State"))
    def progress(self, obj: Erasure) -> str:
        return erasing.progress(obj)

    def get_urls(self) -> list[URLPattern]:
        return [path("person/", self.admin_site.admin_view(self.person_view), name="orders_erasure_person"), *super().get_urls()]

    def person_view(self, request: HttpRequest) -> HttpResponseBase:
        """Look a person up; then export, or erase after the plan was shown."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        form, plan = PersonForm(request.POST if request.method == "POST" else None), None
        if request.method == "POST" and form.is_valid():
            facts, act = form.cleaned_data, request.POST.get("act")
            try:
                person = people.by_email(facts["email"])
                plan = erasing.plan(person)
                if act == "export":
                    return self._export(request, person)
                if act == "erase":
                    return self._erase(request, person, facts)
            except Refused as refusal:
                form.add_error(None, str(refusal))
        facts = {"form": form, "plan": plan, "may_erase": request.user.has_perm(ERASES), "may_export": request.user.has_perm(EXPORTS)}
        context = {**self.admin_site.each_context(request), "opts": self.opts, "title": _("Privacy"), **facts}
        context["back"] = reverse("admin:orders_erasure_changelist")
        return TemplateResponse(request, "admin/orders/person.html", context, status=400 if form.errors else 200)

    def _export(self, request: HttpRequest, person: people.Person) -> HttpResponseBase:
        if not request.user.has_perm(EXPORTS):
            raise PermissionDenied
        last = Erasure(pk=0)
        log_all(account_of(request), [(last, f"exported the data of {person.digests[0]}")])
        return zipped(person)

    def _erase(self, request: HttpRequest, person: people.Person, facts: dict[str, Any]) -> HttpResponse:
        if not request.user.has_perm(ERASES):
            raise PermissionDenied
        erasure = erasing.begin(person, by=account_of(request), reason=facts["reason"], when_ended=facts["when_ended"])
        messages.success(request, _("Erasure %(number)d has begun. It goes on by itself.") % {"number": erasure.pk})
        return HttpResponseRedirect(reverse("admin:orders_erasure_changelist"))
