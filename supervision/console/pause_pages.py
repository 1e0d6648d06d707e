"""Pauses in the console: the list with reasons and actors, and the pages on which operators pause and resume with a reason.

`supervision.operations.pauses` does all the writing. Links from other pages fill the form in advance.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import BooleanField, Case, Exists, OuterRef, QuerySet, When
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.text import Truncator
from django.utils.translation import gettext_lazy as _
from unfold.decorators import display
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from supervision.approvals import rights
from supervision.console.bounded_lists import PageAdmin
from supervision.console.shared import pause_address, person, resume_address, run_address
from supervision.console.verb_forms import ReasonForm, Verb
from supervision.errors import Refused, UnknownRun
from supervision.models import Pause, Run
from supervision.operations import pauses
from supervision.states import FINAL_RUN_STATES

ONE_ORDER = f"{Pause.Scope.ORDER}:"
PAUSE = Verb("pause", _("Pause"), _("What runs finishes; nothing more is begun."), _("It is paused."), frozenset(), "pause")
RESUME = Verb("resume", _("Resume"), _("The work goes on at once."), _("It is resumed."), frozenset(), "play_arrow")


def pause_verb(run: Run, back: str) -> tuple[Verb, str] | None:
    """The verb for this order's own pause, pause or resume, with the address of its page."""
    if run.process_state in FINAL_RUN_STATES:
        return None
    held = pauses.in_force(Pause.objects.filter(scope=Pause.Scope.ORDER, name=run.key)).first()
    if held is not None:
        return RESUME, resume_address(held.pk, back)
    return PAUSE, pause_address(Pause.Scope.ORDER, run.key, back)


class PauseForm(ReasonForm):
    """Asks what to pause, why, and until when."""

    target = forms.ChoiceField(label=_("What"), widget=UnfoldAdminSelectWidget())
    order = forms.CharField(
        label=_("Public id of the order"), required=False, max_length=200, widget=UnfoldAdminTextInputWidget(),
        help_text=_("Only to pause one order. It may be one that is not taken up yet."),
    )  # fmt: skip
    until = forms.CharField(
        label=_("Until"), required=False, max_length=40, widget=UnfoldAdminTextInputWidget(attrs={"placeholder": "15m"}),
        help_text=_("15m, 2h, or a time such as 2026-11-21T14:05: then it goes on by itself. Empty: until an operator resumes it."),
    )  # fmt: skip
    field_order = ("target", "order", "reason", "until")

    def __init__(self, data: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(data, **kwargs)
        self.fields["reason"].help_text = _("Kept with your name; operators read it where they see what waits.")
        choices: list[tuple[str, Any]] = [(ONE_ORDER, _("One order")), ("all:", _("Everything"))]
        choices += [(f"agent:{name}", _("The agent %(name)s") % {"name": name}) for name in pauses.names("agent")]
        choices += [(f"workflow:{name}", _("The workflow %(name)s") % {"name": name}) for name in pauses.names("workflow")]
        self.fields["target"].choices = choices  # type: ignore[attr-defined]

    def clean_until(self) -> Any:
        """The time or the duration; None where nothing was given."""
        text = self.cleaned_data["until"]
        try:
            return pauses.read_until(text) if text else None
        except ValueError as problem:
            raise forms.ValidationError(str(problem)) from problem

    def clean(self) -> None:
        """Split the chosen target into `scope` and `name`."""
        scope, _colon, name = self.cleaned_data.get("target", "").partition(":")
        if scope == Pause.Scope.ORDER:
            name = self.cleaned_data.get("order", "").strip()
            if not name:
                self.add_error("order", forms.ValidationError(_("Which order?"), "required"))
        elif scope and self.cleaned_data.get("order"):
            self.add_error("order", forms.ValidationError(_("Leave this empty unless one order is to pause."), "invalid"))
        self.cleaned_data |= {"scope": scope, "name": name}


class ActiveFilter(admin.SimpleListFilter):
    """Filters pauses that are in force, or over."""

    title = _("force")
    parameter_name = "active"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [("yes", _("In force")), ("no", _("Over"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(console_active=self.value() == "yes") if self.value() in ("yes", "no") else queryset


@admin.register(Pause)
class PauseAdmin(PageAdmin):
    """An account that may see orders may see their pauses. An account that may operate may pause and resume."""

    empty_means = _("Nothing is paused: all orders may move.")
    list_display = ["what", "standing", "why", "paused_by", "paused_at", "until", "ended"]
    list_filter = [ActiveFilter, ("scope", admin.ChoicesFieldListFilter)]
    ordering = ["-paused_at", "-pk"]
    takes_posts = True

    def has_add_permission(self, request: HttpRequest, *args: Any) -> bool:
        return rights.may(request.user, "pause") and self.has_view_permission(request)

    def get_queryset(self, request: HttpRequest) -> Any:
        active = Exists(pauses.active().filter(pk=OuterRef("pk")))
        return super().get_queryset(request).annotate(
            console_active=Case(When(active, then=True), default=False, output_field=BooleanField())
        )  # fmt: skip

    @display(description=_("What"))
    def what(self, obj: Any) -> str:
        return pauses.label(obj.scope, self.called(obj) or obj.name)

    @staticmethod
    def order_of(row: Any) -> str:
        """The order that the pause is of; nothing if it is of more."""
        return str(row.name) if row.scope == Pause.Scope.ORDER else ""

    @display(description=_("State"), label={"paused": "warning", "over": None})
    def standing(self, obj: Any) -> tuple[str, Any]:
        return ("paused", _("paused")) if obj.console_active else ("over", _("over"))

    @display(description=_("Reason"))
    def why(self, obj: Pause) -> str:
        return Truncator(" ".join(obj.reason.split())).chars(80)

    @display(description=_("Resumed by"), empty_value="")
    def ended(self, obj: Any) -> Any:
        if obj.console_active:
            return None
        return obj.lifted_by or _("its time was over")

    # --- Pages --------------------------------------------------------------------------------------------------------

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Pause something, with a reason."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        back = self._back(request)
        if request.method != "POST":
            scope, name = request.GET.get("scope", "order"), request.GET.get("name", "")
            order = name if scope == Pause.Scope.ORDER else ""
            initial = {"target": f"{scope}:{'' if scope == Pause.Scope.ORDER else name}", "order": order}
            return self._pause_page(request, PauseForm(initial=initial), back)
        form = PauseForm(request.POST)
        if form.is_valid():
            said = form.cleaned_data
            try:
                pauses.pause(said["scope"], said["name"], reason=said["reason"], by=person(request), until=said["until"])
            except UnknownRun as unknown:
                form.add_error("order", str(unknown))
            except Refused as refusal:
                form.add_error("until" if refusal.code == "until_has_passed" else None, str(refusal))
            else:
                messages.success(request, PAUSE.done)
                return HttpResponseRedirect(back)
        return self._pause_page(request, form, back)

    def _pause_page(self, request: HttpRequest, form: PauseForm, back: str) -> HttpResponse:
        return self.page(request, "pause.html", title=PAUSE.label, form=form, verb=PAUSE, back=back)

    def show(self, request: HttpRequest, held: Any, /) -> HttpResponse:
        """One pause with its whole record; while it is in force, the form that lifts it."""
        may_resume, back = rights.may(request.user, "pause") and held.console_active, self._back(request)
        form = ReasonForm(request.POST if request.method == "POST" else None)
        form.fields["reason"].label = _("Reason to resume")
        form.fields["reason"].help_text = _("Kept with the pause, together with your name.")
        if request.method == "POST":
            if not rights.may(request.user, "pause"):
                raise PermissionDenied
            if form.is_valid():
                try:
                    pauses.lift(held.scope, held.name, by=person(request), reason=form.cleaned_data["reason"], pk=held.pk)
                except Refused as refusal:
                    messages.warning(request, str(refusal))
                else:
                    messages.success(request, RESUME.done)
                return HttpResponseRedirect(back)
        return self.page(
            request, "pause_record.html", title=self.what(held), object=held, original=held, held=held, back=back,
            form=form if may_resume else None, verb=RESUME, order=run_address(held.run_id) if held.run_id else "",
        )  # fmt: skip

    def _back(self, request: HttpRequest) -> str:
        back = request.GET.get("next", "")
        if url_has_allowed_host_and_scheme(back, {request.get_host()}, require_https=request.is_secure()):
            return back
        return f"{reverse('admin:supervision_pause_changelist')}?{urlencode({'active': 'yes'})}"
