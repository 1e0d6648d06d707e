"""The console's side bar: only entries that the account may see, with the counts that every page shows."""

from __future__ import annotations

from typing import Any

from django.db.models import Model
from django.http import HttpRequest
from django.urls import reverse
from django.utils.translation import gettext as _

from supervision.console.shared import count_up_to, open_alerts, open_incidents
from supervision.models import (
    Alert,
    ArchivedRun,
    CachedResult,
    DeadLetter,
    Delivery,
    Heartbeat,
    Incident,
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
    WebhookEndpoint,
)
from supervision.states import RunState


def entry(
    request: HttpRequest, model: type[Model], icon: str, *, title: str = "", query: str = "", badge: str = ""
) -> list[dict[str, Any]]:
    """A side bar entry for a model's list; empty if the account may not see it."""
    meta = model._meta
    if not request.user.has_perm(f"{meta.app_label}.view_{meta.model_name}"):
        return []
    address = reverse(f"admin:{meta.app_label}_{meta.model_name}_changelist")
    item: dict[str, Any] = {"title": title or str(meta.verbose_name_plural).capitalize(), "icon": icon}
    item["link"] = address + query
    item["active"] = request.path.startswith(address)
    if badge and badge != "0":
        item["badge"] = badge
    return [item]


def badges(request: HttpRequest) -> dict[str, str]:
    """The counts that the side bar shows on every page."""
    if not request.user.has_perm("supervision.view_run"):
        return {"error": "", "alerts": "", "incidents": ""}
    return {
        "error": count_up_to(Run.objects.filter(process_state=RunState.ERROR)),
        "alerts": count_up_to(open_alerts()),
        "incidents": count_up_to(open_incidents()),
    }


def overview_entry() -> dict[str, Any]:
    """The link to the landing page."""
    return {"title": _("Overview"), "icon": "dashboard", "link": reverse("admin:index")}


def engine_groups(request: HttpRequest, shown: dict[str, str]) -> list[dict[str, Any]]:
    """The engine's part of the side bar."""
    return [
        {
            "title": _("Supervision"),
            "separator": True,
            "items": [
                *entry(request, Incident, "crisis_alert", query="?open=yes", badge=shown["incidents"]),
                *entry(request, Alert, "notifications", query="?open=yes", badge=shown["alerts"]),
                *entry(request, DeadLetter, "mark_email_unread", query="?open=yes"),
                *entry(request, Submission, "inbox", query="?waiting=yes"),
                *entry(request, Pause, "pause_circle", query="?active=yes"),
                *entry(request, Notification, "outgoing_mail", query="?undelivered=yes"),
                *entry(request, Delivery, "send", query="?state=failing"),
                *entry(request, WebhookEndpoint, "webhook"),
                *entry(request, ReplyToken, "reply"),
                *entry(request, Run, "account_tree"),
                *entry(request, ArchivedRun, "archive"),
            ],
        },
        {
            "title": _("Machinery"),
            "separator": True,
            "items": [
                *entry(request, Resource, "electrical_services"),
                *entry(request, ResourceRoute, "alt_route"),
                *entry(request, JournalFile, "receipt"),
                *entry(request, JournalEntry, "format_list_bulleted"),
                *entry(request, CachedResult, "cached"),
                *entry(request, Heartbeat, "monitor_heart"),
                *entry(request, LeaderLease, "shield_person"),
            ],
        },
    ]


def navigation(request: HttpRequest) -> list[dict[str, Any]]:
    """The side bar of an installation without an application's own entries."""
    shown = badges(request)
    first = {"title": "", "items": [overview_entry()]}
    return [first, *engine_groups(request, shown)]
