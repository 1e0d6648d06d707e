"""The console's side bar: only entries that the account may see, with the counts that every page shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.models import Model
from django.http import HttpRequest
from django.urls import reverse
from django.utils.text import capfirst
from django.utils.translation import gettext as _

from supervision.approvals import waiting
from supervision.console.shared import count_alerts, count_up_to, stopped_for_operators, waiting_incidents
from supervision.insight.filters import Filters
from supervision.models import (
    Alert,
    ApiRequest,
    Approval,
    ArchivedRun,
    CachedResult,
    Channel,
    DeadLetter,
    Delivery,
    Heartbeat,
    Incident,
    Job,
    JournalEntry,
    JournalFile,
    LeaderLease,
    Notification,
    Pause,
    ReplyToken,
    Resource,
    ResourceRoute,
    Run,
    Submission,
    Telling,
    WebhookEndpoint,
)

SEES_JOBS = "supervision.view_run"  # an account that may see all orders may see what jobs do to them


def entry(
    request: HttpRequest, model: type[Model], icon: str, *, title: str = "", query: str = "", badge: str = "", permission: str = ""
) -> list[dict[str, Any]]:
    """A side bar entry for a model's list; empty if the account may not see it. permission: the one that the list asks for."""
    meta = model._meta
    if not request.user.has_perm(permission or f"{meta.app_label}.view_{meta.model_name}"):
        return []
    address = reverse(f"admin:{meta.app_label}_{meta.model_name}_changelist")
    item: dict[str, Any] = {"title": title or capfirst(str(meta.verbose_name_plural)), "icon": icon}
    item["link"] = address + query
    item["active"] = request.path.startswith(address)
    if badge and badge != "0":
        item["badge"] = badge
    return [item]


def badges(request: HttpRequest, filters: Filters) -> dict[str, str]:
    """The counts that the side bar shows on every page. filters: of the list of the daily work; `error` counts what this list has.

    Each counts what an operator has to act on, by the landing page's rule: a refused card waits for its customer."""
    if not request.user.has_perm("supervision.view_run"):
        return {"error": "", "alerts": "", "incidents": ""}
    return {
        "error": count_up_to(stopped_for_operators(filters.listed("pk"))),
        "alerts": count_alerts(request),
        "incidents": count_up_to(waiting_incidents()),
    }


def overview_entry(shown: dict[str, str]) -> dict[str, Any]:
    """The link to the landing page, which is the list of open incidents."""
    item = {"title": _("Incidents"), "icon": "crisis_alert", "link": reverse("admin:index")}
    return item | {"badge": shown["incidents"]} if shown["incidents"] not in ("", "0") else item


def job_entry(request: HttpRequest) -> list[dict[str, Any]]:
    """The bulk jobs, with the number of those that are running or stopped."""
    if not request.user.has_perm(SEES_JOBS):
        return []
    return entry(request, Job, "checklist", permission=SEES_JOBS, badge=count_up_to(Job.objects.exclude(state=Job.State.DONE)))


def dead_letter_entry(request: HttpRequest) -> list[dict[str, Any]]:
    """The last entries of the daily work: what waits for another operator, and dead letters."""
    waits = count_up_to(waiting.pending()) if request.user.has_perm("supervision.view_run") else ""
    asked = entry(request, Approval, "approval", query="?state=pending", badge=waits, permission="supervision.view_run")
    return [*asked, *entry(request, DeadLetter, "mark_email_unread", query="?open=yes")]


def engine_groups(request: HttpRequest, shown: dict[str, str], schedules: Sequence[dict[str, Any]] = ()) -> list[dict[str, Any]]:
    """The engine's part of the side bar below the daily work. schedules: the application's entries that belong to them."""
    queues = [{"title": _("Queues"), "icon": "stacked_bar_chart", "link": reverse("admin:index") + "#sc-queues", "active": False}]
    may_view = request.user.has_perm("supervision.view_run")
    return [
        {
            "title": _("Supervision"),
            "separator": True,
            "items": [
                *entry(request, Resource, "electrical_services", title=_("Breakers and capacity")),
                *entry(request, Pause, "pause_circle", query="?active=yes"),
                *(queues if may_view else []),
                *schedules,
                *entry(request, Incident, "history", title=_("All incidents")),
                *entry(request, Channel, "campaign", permission="supervision.view_run"),
                *entry(request, Alert, "notifications", query="?open=yes", badge=shown["alerts"]),
            ],
        },
        {
            "title": _("Machinery"),
            "separator": True,
            "items": [
                *entry(request, Run, "account_tree"),
                *entry(request, ArchivedRun, "archive"),
                *entry(request, Submission, "inbox", query="?waiting=yes"),
                *entry(request, ResourceRoute, "alt_route"),
                *entry(request, JournalFile, "receipt"),
                *entry(request, JournalEntry, "format_list_bulleted"),
                *entry(request, ApiRequest, "api", permission="supervision.view_run"),
                *entry(request, Delivery, "send", query="?state=failing"),
                *entry(request, WebhookEndpoint, "webhook"),
                *entry(request, ReplyToken, "reply"),
                *entry(request, Notification, "outgoing_mail", query="?undelivered=yes"),
                *entry(request, Telling, "outbox", permission="supervision.view_run"),
                *entry(request, CachedResult, "cached"),
                *entry(request, Heartbeat, "monitor_heart"),
                *entry(request, LeaderLease, "shield_person"),
            ],
        },
    ]


def navigation(request: HttpRequest) -> list[dict[str, Any]]:
    """The side bar of an installation without an application's own entries: its runs are the daily work."""
    shown = badges(request, Filters())
    daily = [
        overview_entry(shown),
        *entry(request, Run, "receipt_long", badge=shown["error"]),
        *job_entry(request),
        *dead_letter_entry(request),
    ]
    supervision, machinery = engine_groups(request, shown)
    runs = reverse("admin:supervision_run_changelist")
    machinery["items"] = [item for item in machinery["items"] if item["link"] != runs]
    return [{"title": _("Daily work"), "items": daily}, supervision, machinery]
