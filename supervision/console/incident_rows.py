"""The open incidents as the landing page shows them: what each holds, its trend, its owner, and the way out of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

from django.db.models import Case, IntegerField, When
from django.urls import reverse
from django.utils.formats import number_format
from django.utils.translation import gettext as _

from supervision.console.shared import bulk_address, list_address, open_incidents, since
from supervision.incidents import standing
from supervision.incidents.lifecycle import INFO
from supervision.insight.pulse import held_before
from supervision.models import Incident, Resource

INCIDENTS_SHOWN = 50
LOOKED_BACK = timedelta(minutes=15)
SEVERITY_TONES = {"info": "info", "warning": "warning", "critical": "danger"}
# Kinds whose orders no list of runs shows, and where an operator settles what they name.
_ELSEWHERE = {
    "dead_letters": ("admin:supervision_deadletter_changelist", "?open=yes"),
    "pause_overrun": ("admin:supervision_pause_changelist", "?active=yes"),
    "delivery_failed": ("admin:supervision_delivery_changelist", "?state=failing"),
    "channel_failed": ("admin:supervision_channel_changelist", ""),
    "approval": ("admin:supervision_approval_changelist", "?state=pending"),
    "journal": ("admin:supervision_journalfile_changelist", ""),
    "starvation": ("admin:supervision_heartbeat_changelist", ""),
    "discarded_evidence": ("admin:supervision_deadletter_changelist", ""),
    "unknown_version": ("admin:supervision_heartbeat_changelist", ""),
}


@dataclass(frozen=True)
class IncidentRow:
    """One open incident. change: orders held now against 15 minutes ago; None: unknown."""

    incident: Incident
    address: str
    tone: str
    orders_address: str
    held: str
    change: int | None
    verb: str
    verb_address: str


def incident_rows() -> dict[str, Any]:
    """The open incidents, the worst first, and the severity of the worst. Three statements for any number of them."""
    rank = Case(When(severity="critical", then=0), When(severity="warning", then=1), default=2, output_field=IntegerField())
    found = list(open_incidents().annotate(age=since("opened_at")).order_by(rank, "-orders", "opened_at")[: INCIDENTS_SHOWN + 1])
    before = held_before() if found else None
    resources = dict(Resource.objects.values_list("name", "pk")) if found else {}
    rows = [_row(row, before, resources) for row in found[:INCIDENTS_SHOWN]]
    return {
        "incidents": rows,
        "amounts_shown": any(row.held and row.incident.orders for row in rows),
        "more_incidents": len(found) > INCIDENTS_SHOWN,
        "worst": found[0].severity if found else "",
    }


def _row(row: Any, before: Mapping[str, int] | None, resources: Mapping[str, int]) -> IncidentRow:
    verb, verb_address = way_out(row, resources)
    return IncidentRow(
        incident=row,
        address=reverse("admin:supervision_incident_change", args=[row.pk]),
        tone=SEVERITY_TONES[row.severity],
        orders_address=verb_address if row.kind == "dead_letters" else list_address(incident=row.pk),  # they have no runs
        held=", ".join(f"{number_format(Decimal(amount), use_l10n=True, force_grouping=True)} {currency}" for amount, currency in row.held),
        change=_change(row, before),
        verb=verb,
        verb_address=verb_address,
    )


def _change(row: Any, before: Mapping[str, int] | None) -> int | None:
    if row.age < LOOKED_BACK:
        return int(row.orders)
    return None if before is None else row.orders - before.get(str(row.pk), 0)


def way_out(row: Incident, resources: Mapping[str, int]) -> tuple[str, str]:
    """The verb that settles all of an incident's orders, or the page where its cause is settled. resources: row ids by name.

    Of severity info, where customers have to act and not operators, it is the list of the orders."""
    if row.severity == INFO:
        return _("List its orders"), list_address(incident=row.pk)
    if row.kind == "step_error":
        return _("Resubmit all"), bulk_address("resubmit", incident=row.pk)
    if row.kind == "outage" and row.resource in resources:
        return _("See the breaker"), reverse("admin:supervision_resource_change", args=[resources[row.resource]])
    words = {
        "dead_letters": _("Decide about them"),
        "pause_overrun": _("See the pauses"),
        "delivery_failed": _("See the deliveries"),
        "channel_failed": _("See the channels"),
        "approval": _("Decide about them"),
        "journal": _("See the journal"),
        "discarded_evidence": _("See the dead letters"),
    }
    if row.kind in _ELSEWHERE:
        page, query = _ELSEWHERE[row.kind]
        return words.get(row.kind) or _("See the processes"), reverse(page) + query
    if row.kind in standing.kinds:  # their keys are of orders
        return _("See the order"), list_address(q=row.cause.partition(":")[2])
    return _("Details"), reverse("admin:supervision_incident_change", args=[row.pk])
