"""Remote resources in the admin: the breaker as all workers see it, calls in flight, waiting steps, and the limits.

An operator edits the limits, adds a second resource to a service, or takes one away. The resource's history keeps every
change with its author.
"""

from __future__ import annotations

import re
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType
from django.core.validators import RegexValidator
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, reverse
from django.utils.text import Truncator
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext
from unfold.admin import ModelAdmin
from unfold.decorators import display
from unfold.views import ChangeList
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from supervision.approvals import rights
from supervision.console.bounded_lists import OwnChangesAdmin
from supervision.console.lists.row_buttons import address_of, row_button
from supervision.console.shared import person
from supervision.models import Resource
from supervision.operations import resource_limits
from supervision.runtime.humanize import age_in_words, number
from supervision.runtime.retold import retold

HISTORY_SHOWN = 8
NAME = RegexValidator(re.compile(r"^[A-Za-z0-9_.-]{1,100}\Z"), _("Use letters, digits, dots, dashes and underscores only."))


class ResourceChangeList(ChangeList):
    """Reads the load of all resources in one query and lays it beside the rows."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        figures = {row.name: row for row in resource_limits.figures()}
        for row in self.result_list:
            row.figures = figures[row.name]


class ResourceForm(forms.ModelForm):
    """The limits of a resource; for a new one also its name and service."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "name" in self.fields:
            self.fields["name"].widget = UnfoldAdminTextInputWidget()
            self.fields["name"].validators.append(NAME)
            self.fields["name"].help_text = _("What histories and metrics call it, such as carrier-north. It cannot be changed later.")
            choices = [(service, service) for service in resource_limits.services()]
            self.fields["service"] = forms.ChoiceField(
                label=_("Service"), choices=choices, widget=UnfoldAdminSelectWidget(), required=True,
                help_text=_("The agent's. From now on its calls are spread over all resources of this service."),
            )  # fmt: skip
        if "settings" in self.fields:
            self.fields["settings"].help_text = _(
                "What the agent needs to call this one, as a JSON object: an address, an account. Never a secret: every user "
                "who may see resources can read it."
            )

    def clean_settings(self) -> Any:
        """Require an object, because agents look names up in it."""
        value = self.cleaned_data["settings"]
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise forms.ValidationError(_('Expected a JSON object, such as {"account": "north"}.'), "invalid")
        return value


class LimitsAdmin(ModelAdmin):
    """Rows whose changes take effect at once in this process, and are logged with old and new values."""

    def construct_change_message(self, request: HttpRequest, form: Any, formsets: Any, add: bool = False) -> Any:
        """Log old and new values, not only the fields' names."""
        if add:
            return super().construct_change_message(request, form, formsets, add)
        before = {name: form.initial.get(name) for name in form.changed_data}
        return resource_limits.in_words(before, {name: form.cleaned_data[name] for name in form.changed_data})

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        super().delete_model(request, obj)
        resource_limits.take_effect()


@admin.register(Resource)
class ResourceAdmin(LimitsAdmin, OwnChangesAdmin):
    """Limits take effect on the next claim."""

    form = ResourceForm
    change_form_before_template = "admin/supervision/resource_now.html"
    change_form_after_template = "admin/supervision/resource_history.html"
    list_display = ["name", "serves", "breaker", "calls", "waiting", "rate", "trouble"]
    readonly_fields = ["name", "serves"]
    ordering = ["service", "name"]
    sortable_by = ()
    actions = ["close_breakers"]
    fieldsets = [
        (None, {"fields": ["name", "serves"]}),
        (_("Limits"), {"fields": ["capacity", "rate_per_second", "paused"]}),
        (_("Breaker"), {"fields": ["breaker_threshold", "cool_down_seconds", "probe_limit"]}),
        (_("For the agent"), {"fields": ["settings"]}),
    ]
    add_fieldsets = [(None, {"fields": ["name", "service"]}), *fieldsets[1:]]

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return ResourceChangeList

    def get_fieldsets(self, request: HttpRequest, obj: Resource | None = None) -> Any:
        return self.fieldsets if obj is not None else self.add_fieldsets

    def get_readonly_fields(self, request: HttpRequest, obj: Resource | None = None) -> Any:
        return self.readonly_fields if obj is not None else []

    def has_add_permission(self, request: HttpRequest) -> bool:
        return rights.may(request.user, rights.LIMITS)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return rights.may(request.user, rights.LIMITS)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return rights.may(request.user, rights.LIMITS)

    # --- List ---------------------------------------------------------------------------------------------------------

    @display(description=_("Service"))
    def serves(self, obj: Resource) -> str:
        return obj.service or obj.name

    @display(description=_("Breaker"), label={"closed": "success", "open": "danger", "half-open": "warning", "paused": "warning"})
    def breaker(self, obj: Any) -> tuple[str, Any]:
        if obj.paused:
            return "paused", _("paused")
        if obj.breaker_state == Resource.Breaker.CLOSED or obj.opened_at is None:
            return obj.breaker_state, obj.get_breaker_state_display()
        age = age_in_words(obj.figures.now - obj.opened_at)
        return obj.breaker_state, _("%(state)s for %(age)s") % {"state": obj.get_breaker_state_display(), "age": age}

    @display(description=_("Calls under way"))
    def calls(self, obj: Any) -> Any:
        if obj.capacity is None:
            return obj.figures.in_flight
        return _("%(n)s of %(capacity)s") % {"n": obj.figures.in_flight, "capacity": obj.capacity}

    @display(description=_("Waiting"))
    def waiting(self, obj: Any) -> str:
        return number(obj.figures.waiting)

    @display(description=_("Calls per second"), empty_value="")
    def rate(self, obj: Resource) -> str | None:
        return None if obj.rate_per_second is None else number(obj.rate_per_second)

    @display(description=_("Last error"), empty_value="")
    def trouble(self, obj: Any) -> str | None:
        if not obj.last_error:
            return None
        text = Truncator(retold(" ".join(obj.last_error.split()))).chars(60)
        age = age_in_words(obj.figures.now - obj.last_error_at) if obj.last_error_at else ""
        return _("%(age)s ago: %(text)s") % {"age": age, "text": text} if age else text

    @admin.action(description=_("Close the breaker of the selected resources now"), permissions=["change"])
    def close_breakers(self, request: HttpRequest, queryset: QuerySet[Resource]) -> None:
        """For an operator who knows that the service is back and does not want to wait for the next probe."""
        closed = resource_limits.close_breakers(list(queryset.values_list("name", flat=True)), by=person(request))
        text = ngettext("%(n)d breaker was closed.", "%(n)d breakers were closed.", len(closed))
        self.message_user(request, text % {"n": len(closed)}, messages.SUCCESS)

    def get_urls(self) -> list[URLPattern]:
        return [row_button(self, "close", self.close_one, allowed=self.has_change_permission), *super().get_urls()]

    def close_one(self, request: HttpRequest, row: Resource) -> None:
        """Close this one's breaker, from its page."""
        self.close_breakers(request, Resource.objects.filter(pk=row.pk))

    # --- Form ---------------------------------------------------------------------------------------------------------

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The form, with the resource's present state above it and its past changes below it."""
        obj = self.get_object(request, object_id)
        extra: dict[str, Any] = {**(extra_context or {})}
        if obj is not None:
            entries = LogEntry.objects.filter(content_type=ContentType.objects.get_for_model(Resource), object_id=str(obj.pk))
            broken = obj.breaker_state != Resource.Breaker.CLOSED and self.has_change_permission(request, obj)
            extra |= {
                "figures": next((row for row in resource_limits.figures() if row.name == obj.name), None),
                "close": address_of("close", obj) if broken else "",
                "resource": obj,
                "show_delete": not resource_limits.hindrances(obj),
                "entries": entries.select_related("user").order_by("-action_time")[:HISTORY_SHOWN],
                "history": reverse("admin:supervision_resource_history", args=[obj.pk]),
            }
        answer: HttpResponse = super().change_view(request, object_id, form_url, extra)
        return answer

    def save_model(self, request: HttpRequest, obj: Resource, form: forms.ModelForm[Any], change: bool) -> None:
        """Write only the changed fields, because workers change the breaker's columns while the form is open."""
        if change:
            obj.refresh_from_db(fields=[name for name in form.fields if name not in form.changed_data])
            resource_limits.replan(obj)
        super().save_model(request, obj, form, change)
        resource_limits.take_effect()

    def get_actions(self, request: HttpRequest) -> Any:
        """Resources are deleted one at a time, because each is first checked for what still needs it."""
        return {name: action for name, action in super().get_actions(request).items() if name != "delete_selected"}

    def delete_view(self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Refuse to delete a resource that is still needed, and show the reasons."""
        obj = self.get_object(request, object_id)
        if obj is not None and self.has_delete_permission(request, obj) and (reasons := resource_limits.hindrances(obj)):
            messages.error(request, _("%(name)s cannot be deleted. %(why)s") % {"name": obj, "why": " ".join(reasons)})
            return HttpResponseRedirect(reverse("admin:supervision_resource_change", args=[obj.pk]))
        answer: HttpResponse = super().delete_view(request, object_id, extra_context)
        return answer
