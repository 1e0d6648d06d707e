"""Routes in the admin: which resource serves which partition of a service's entities.

An operator who edits a route moves its partition, without a change of code: running calls finish on the old resource, later
calls go to the new one.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import F
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext_lazy as _
from unfold.decorators import display
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from supervision.admin.resource_pages import LimitsAdmin
from supervision.governance.resources import ANY_PARTITION, PARTITIONS
from supervision.models import Resource, ResourceRoute
from supervision.operations import resource_limits


def serving() -> dict[str, list[str]]:
    """The resources of each service, by name."""
    found: dict[str, list[str]] = defaultdict(list)
    for resource in Resource.objects.order_by("name"):
        found[resource.service or resource.name].append(resource.name)
    return dict(found)


def destinations() -> list[dict[str, Any]]:
    """The resources of each service and their partitions, for services with several resources or with routes."""
    routes: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for route in ResourceRoute.objects.order_by("service", "resource", "partition"):
        routes[route.service][route.resource].append(route.partition)
    found = []
    for service, names in sorted(serving().items()):
        if len(names) < 2 and service not in routes:
            continue
        rows = [(name, _in_numbers([part for part in parts if part != ANY_PARTITION])) for name, parts in routes[service].items()]
        rest = next((name for name, parts in routes[service].items() if ANY_PARTITION in parts), None)
        found.append({"service": service, "rows": [row for row in rows if row[1]], "rest": rest, "members": names})
    return found


def _in_numbers(partitions: list[str]) -> str:
    return ", ".join(sorted(partitions, key=lambda part: (not part.isdecimal(), int(part) if part.isdecimal() else 0, part)))


class RouteForm(forms.ModelForm):
    """A service, a partition of it, and one of its resources."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        known = serving()
        if "service" in self.fields:
            self.fields["service"] = forms.ChoiceField(
                label=_("Service"), choices=[(name, name) for name in sorted(known)], widget=UnfoldAdminSelectWidget()
            )
            self.fields["partition"].widget = UnfoldAdminTextInputWidget()
            self.fields["partition"].help_text = _(
                "A name that orders carry, or a number from 0 to %(last)d, over which the others are spread by their id; "
                "%(any)s for all that have no route of their own."
            ) % {"last": PARTITIONS - 1, "any": ANY_PARTITION}  # fmt: skip
        if "resource" in self.fields:
            choices = [(name, f"{name} ({service})") for service, names in sorted(known.items()) for name in names]
            self.fields["resource"] = forms.ChoiceField(label=_("Resource"), choices=choices, widget=UnfoldAdminSelectWidget())

    def clean(self) -> dict[str, Any]:
        """The resource must serve the service."""
        said: dict[str, Any] = super().clean() or self.cleaned_data
        service = said.get("service") or self.instance.service
        members = serving().get(service, [])
        if said.get("resource") and said["resource"] not in members:
            wrong = _("%(resource)s does not serve %(service)s; its resources: %(members)s.")
            self.add_error("resource", wrong % {"resource": said["resource"], "service": service, "members": ", ".join(members)})
        return said


@admin.register(ResourceRoute)
class ResourceRouteAdmin(LimitsAdmin):
    """The resource of each partition, and since when."""

    form = RouteForm
    empty_means = _("No route: the calls of each service use the resource of the same name.")
    list_before_template = "admin/supervision/routes.html"
    list_display = ["partition", "service", "resource", "version", "changed_at"]
    fields = ["service", "partition", "resource"]
    ordering = ["service", "partition"]
    sortable_by = ()

    def get_readonly_fields(self, request: HttpRequest, obj: ResourceRoute | None = None) -> Any:
        return ["service", "partition_in_words"] if obj is not None else []

    def get_fields(self, request: HttpRequest, obj: ResourceRoute | None = None) -> Any:
        return ["service", "partition_in_words", "resource"] if obj is not None else self.fields

    @display(description=_("Partition"))
    def partition_in_words(self, obj: ResourceRoute) -> Any:
        return _("all others") if obj.partition == ANY_PARTITION else obj.partition

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """The list of routes, with the overview of `destinations` above it."""
        answer: HttpResponse = super().changelist_view(request, {**(extra_context or {}), "destinations": destinations()})
        return answer

    def save_model(self, request: HttpRequest, obj: ResourceRoute, form: forms.ModelForm[Any], change: bool) -> None:
        """Raise the version, so that steps routed before are told apart from steps routed now."""
        if change:
            obj.version = F("version") + 1  # type: ignore[assignment]
            obj.save(update_fields=["resource", "version", "changed_at"])
            obj.refresh_from_db()
        else:
            obj.save()
        resource_limits.take_effect()

    def delete_queryset(self, request: HttpRequest, queryset: Any) -> None:
        super().delete_queryset(request, queryset)
        resource_limits.take_effect()
