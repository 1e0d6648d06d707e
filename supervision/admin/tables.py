"""The engine's tables in the admin, read-only. To act, operators use pages that ask for a reason (`console.verb_pages`)."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Case, DurationField, ExpressionWrapper, F, Q, QuerySet, When
from django.db.models.functions import Now
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.text import Truncator
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext
from unfold.decorators import action, display

from supervision.admin import (  # noqa: F401
    approval_pages,
    archived_runs,
    cached_answers,
    channel_pages,
    incident_pages,
    job_pages,
    journal_pages,
    outbound_pages,
    resource_pages,
    route_pages,
    schedules,
)
from supervision.admin.requestlog import pages as request_pages  # noqa: F401
from supervision.approvals import rights
from supervision.console.bounded_lists import FlagFilter, OpenFilter, PageAdmin, ReadOnlyAdmin
from supervision.console.run_lists import RunConsole
from supervision.console.shared import STALE_AFTER, open_alerts, person, run_address
from supervision.console.verb_forms import ReasonForm
from supervision.deadletters.dead_letters import hex_dump
from supervision.errors import Refused
from supervision.incidents.lifecycle import INFO
from supervision.models import Alert, DeadLetter, Heartbeat, LeaderLease, Notification, Run, Submission
from supervision.operations import operator_verbs, requeue
from supervision.runtime.humanize import age_in_words
from supervision.runtime.retold import retold

BYTES_SHOWN = 65_536


class OpenAlertFilter(OpenFilter):
    """Open: what waits for an operator, as the landing page and the side bar count it. Each alert has one of these states.

    An acknowledged alert has its operator, and a refused card waits for the customer."""

    yes = _("Waits for an operator")

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        seen, customers = ("seen", _("Acknowledged, not closed")), ("customers", _("Waits for the customer"))
        return [("yes", self.yes), seen, customers, ("no", self.no)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        match self.value():
            case "yes":
                return open_alerts(queryset)
            case "seen":
                return queryset.filter(closed_at__isnull=True, acknowledged_at__isnull=False).exclude(severity=INFO)
            case "customers":
                return queryset.filter(closed_at__isnull=True, severity=INFO)
        return super().queryset(request, queryset)


class OpenDeadLetterFilter(FlagFilter):
    title, parameter_name, field = _("resolution"), "open", "resolved_at"
    yes, no = _("Open"), _("Resolved")


class WaitingFilter(FlagFilter):
    title, parameter_name, field = _("consumption"), "waiting", "consumed_at"
    yes, no = _("Waiting"), _("Consumed")


class UndeliveredFilter(FlagFilter):
    title, parameter_name, field = _("delivery"), "undelivered", "delivered_at"
    yes, no = _("Undelivered"), _("Delivered")

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """The undelivered ones by the conditions of their three indexes. No index has all of them, and most rows are delivered."""
        if self.value() != "yes":
            return super().queryset(request, queryset)
        undelivered = Q(delivered_at__isnull=True)
        waiting = undelivered & Q(given_up_at__isnull=True) & ~Q(kind="status")
        return queryset.filter(waiting | undelivered & Q(kind="status") | undelivered & Q(given_up_at__isnull=False))


@admin.register(Run)
class RunAdmin(RunConsole):
    """The engine's own list of runs, for workflows whose application offers operators no list of its own."""

    empty_means = _("No order has been taken up yet. Submitted orders appear here within seconds while a scheduler runs.")
    list_display = ["key", "workflow", "state", "step", "attempts", "age", "owner", "error"]

    def run_of(self, obj: Run) -> Run:
        return obj

    def facts(self, obj: Run) -> list[tuple[Any, Any]]:
        return [
            (_("Workflow"), obj.workflow),
            (_("Created"), obj.created_at),
            (_("Cancel requested"), obj.cancel_requested_at),
            (_("Finished"), obj.finished_at),
        ]


@admin.register(Alert)
class AlertAdmin(ReadOnlyAdmin):
    """Alerts for operators, newest first."""

    empty_means = _("No order needs an operator.")
    list_display = ["order", "step", "what", "text", "raised", "acknowledgement"]
    list_display_links = None
    list_before_template = "admin/supervision/alerts_told.html"
    list_filter = [OpenAlertFilter, ("kind", admin.ChoicesFieldListFilter)]
    list_select_related = ["run"]
    ordering = ["-id"]  # the newest first: no index has all alerts by the time at which they were raised
    actions = ["acknowledge_selected"]
    aged_from = "raised_at"
    order_of = attrgetter("run.key")

    @display(description=_("Order"))
    def order(self, obj: Any) -> str:
        return format_html('<a class="sc-link" href="{}" title="{}">{}</a>', run_address(obj.run_id), obj.run.key, self.called(obj))

    @display(description=_("What"), label={kind.value: "warning" for kind in Alert.Kind} | {"error": "danger"})
    def what(self, obj: Alert) -> tuple[str, Any]:
        return obj.kind, obj.get_kind_display()

    @display(description=_("Message"))
    def text(self, obj: Alert) -> str:
        return Truncator(retold(" ".join(obj.message.split()))).chars(80)

    @display(description=_("Raised"), ordering="raised_at")
    def raised(self, obj: Any) -> str:
        return _("%(age)s ago") % {"age": age_in_words(obj.console_age)}

    @display(description=_("Acknowledged by"), empty_value="")
    def acknowledgement(self, obj: Alert) -> str | None:
        return obj.acknowledged_by or None

    def has_operate_permission(self, request: HttpRequest) -> bool:
        """Whether this account may acknowledge alerts."""
        return rights.may(request.user, rights.INCIDENTS)

    @action(description=_("Acknowledge selected alerts"), permissions=["operate"])
    def acknowledge_selected(self, request: HttpRequest, queryset: QuerySet[Alert]) -> None:
        self._acknowledge(request, list(queryset.order_by("pk").values_list("pk", flat=True)[:1000]))

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.acknowledge_view)
        return [path("acknowledge/", view, name="supervision_alert_acknowledge"), *super().get_urls()]

    def acknowledge_view(self, request: HttpRequest) -> HttpResponse:
        """Acknowledge alerts from the landing page or an order's page, and return there."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if not self.has_operate_permission(request):
            raise PermissionDenied
        chosen = [int(word) for word in request.POST.getlist("alert") if word.isdecimal() and len(word) < 19]
        self._acknowledge(request, chosen)
        back = request.POST.get("next", "")
        if not url_has_allowed_host_and_scheme(back, {request.get_host()}, require_https=request.is_secure()):
            back = reverse("admin:index")
        return HttpResponseRedirect(back)

    def _acknowledge(self, request: HttpRequest, chosen: list[int]) -> None:
        done = operator_verbs.acknowledge(chosen, by=person(request))
        words = ngettext("%(n)d alert acknowledged.", "%(n)d alerts acknowledged.", done)
        messages.success(request, words % {"n": done})


@admin.register(DeadLetter)
class DeadLetterAdmin(PageAdmin):
    """Messages and submissions that could not be read, byte for byte. An operator requeues or discards each."""

    empty_means = _("No dead letter: every message that arrived could be read.")
    list_display = ["source", "why", "size", "deliveries", "received", "resolution"]
    list_filter = [OpenDeadLetterFilter]
    ordering = ["-created_at"]
    aged_from = "created_at"

    @display(description=_("Reason"))
    def why(self, obj: DeadLetter) -> str:
        return Truncator(retold(" ".join(obj.reason.split()))).chars(80)

    @display(description=_("Size"))
    def size(self, obj: DeadLetter) -> str:
        return ngettext("%(n)d byte", "%(n)d bytes", len(obj.body)) % {"n": len(obj.body)}

    @display(description=_("Received"))
    def received(self, obj: Any) -> str:
        return _("%(age)s ago") % {"age": age_in_words(obj.console_age)}

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.resolve_view)
        return [path("<int:object_id>/resolve/<slug:verb>/", view, name="supervision_deadletter_resolve"), *super().get_urls()]

    def show(self, request: HttpRequest, letter: DeadLetter, /) -> HttpResponse:
        """Show the letter's bytes as text and as hexadecimal digits. The browser gets both as plain text only."""
        body = bytes(letter.body)
        return self.page(
            request, "dead_letter.html", title=str(letter), original=letter, letter=letter, size=len(body),
            text=body[:BYTES_SHOWN].decode("utf-8", "backslashreplace"), dump=hex_dump(body[:4096]),
            cut=len(body) > BYTES_SHOWN, headers=sorted(letter.headers.items()) if letter.headers else [],
            delivery=sorted(letter.delivery.items()), may_operate=rights.may(request.user, rights.LETTERS),
            may_requeue=requeue.can_go_back(letter),
        )  # fmt: skip

    def resolve_view(self, request: HttpRequest, object_id: int, verb: str) -> HttpResponse:
        """Requeue or discard, with a reason."""
        letter: DeadLetter = self.row(request, object_id)
        if not rights.may(request.user, rights.LETTERS):
            raise PermissionDenied
        act = {"requeue": operator_verbs.requeue_dead_letter, "discard": operator_verbs.discard_dead_letter}.get(verb)
        if act is None:
            raise Http404
        back = reverse("admin:supervision_deadletter_change", args=[letter.pk])
        form = ReasonForm(request.POST if request.method == "POST" else None)
        if form.is_valid():
            try:
                act(letter.pk, by=person(request), reason=form.cleaned_data["reason"])
            except Refused as refusal:
                messages.error(request, str(refusal))
            else:
                messages.success(
                    request, _("The letter goes back to where it came from.") if verb == "requeue" else _("The letter is discarded.")
                )
            return HttpResponseRedirect(back)
        title = _("Requeue dead letter") if verb == "requeue" else _("Discard dead letter")
        return self.page(request, "dead_letter_resolve.html", title=title, letter=letter, form=form, verb=verb, back=back)


@admin.register(Submission)
class SubmissionAdmin(ReadOnlyAdmin):
    """Accepted orders, before and after they became runs."""

    empty_means = _("No submission: every accepted order has been taken up.")
    list_display = ["public_id", "workflow", "client", "age", "consumed_at", "cancel_requested_at"]
    list_filter = [WaitingFilter]
    ordering = ["-id"]
    aged_from = "created_at"
    search_fields = ["=public_id"]
    found_by = ("public_id",)
    search_help_text = _("public id")


@admin.register(Notification)
class NotificationAdmin(ReadOnlyAdmin):
    """The outbox: notifications and how far their delivery has got."""

    empty_means = _("No notification waits: all were delivered.")
    list_display = ["kind", "created_at", "not_before", "standing", "tries", "trouble", "delivered_at"]
    list_filter = [UndeliveredFilter]
    ordering = ["-id"]

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).annotate(console_due=Case(When(not_before__lte=Now(), then=True), default=False))

    @display(description=_("State"), label={"delivered": "success", "given-up": "danger", "due": "warning", "later": None})
    def standing(self, obj: Any) -> tuple[str, Any]:
        """A reminder is written days before it is sent, so that it waits is no trouble."""
        if obj.delivered_at is not None:
            return "delivered", _("delivered")
        if obj.given_up_at is not None:
            return "given-up", _("given up")
        return ("due", _("due")) if obj.console_due else ("later", _("waits for its time"))

    @display(description=_("Last error"), empty_value="")
    def trouble(self, obj: Notification) -> str | None:
        return Truncator(retold(" ".join(obj.last_error.split()))).chars(80) if obj.last_error else None


@admin.register(Heartbeat)
class HeartbeatAdmin(ReadOnlyAdmin):
    """The processes and their last heartbeats."""

    empty_means = _("No process has reported. Start the scheduler, the supervisor and the agents.")
    list_display = ["incarnation", "role", "life", "seen", "started_at"]
    list_filter = [("role", admin.AllValuesFieldListFilter)]
    ordering = ["-seen_at"]
    aged_from = "seen_at"

    @display(description=_("Life"), label={"alive": "success", "silent": "danger"})
    def life(self, obj: Any) -> tuple[str, Any]:
        return ("silent", _("silent")) if obj.console_age > STALE_AFTER else ("alive", _("alive"))

    @display(description=_("Seen"))
    def seen(self, obj: Any) -> str:
        return _("%(age)s ago") % {"age": age_in_words(obj.console_age)}


@admin.register(LeaderLease)
class LeaderLeaseAdmin(ReadOnlyAdmin):
    """The leader leases, with holder and expiry."""

    empty_means = _("No supervisor has led yet. Start one.")
    list_display = ["name", "holder", "term", "elected_at", "left"]
    ordering = ["name"]

    def get_queryset(self, request: HttpRequest) -> Any:
        left = ExpressionWrapper(F("expires_at") - Now(), output_field=DurationField())
        return super().get_queryset(request).annotate(console_left=left)

    @display(description=_("Expires in"))
    def left(self, obj: Any) -> Any:
        expired = obj.console_left.total_seconds() <= 0
        return _("expired") if expired else age_in_words(obj.console_left)
