"""Sends mails to OPERATOR_EMAILS when an incident opens, gets worse, returns or closes. Each mail links to the incident."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

from django.conf import settings
from django.core.mail import EmailMessage
from django.urls import NoReverseMatch, reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from supervision import conf
from supervision.incidents import lifecycle
from supervision.models import Incident, Notification
from supervision.outbox.notifications import handler, mail_domain
from supervision.runtime.humanize import utc

GIVEN_UP_AFTER = timedelta(days=3)


def link(pk: int, of: str = "incident") -> str:
    """The address of the page of an incident, or of a row of this model, under PUBLIC_URL. Without that setting it has no host."""
    try:
        page = reverse(f"admin:supervision_{of}_change", args=[pk])
    except NoReverseMatch:  # an application without the console
        page = ""
    return f"{getattr(settings, 'PUBLIC_URL', '')}{page}"


def amounts(held: list[tuple[str, Decimal]]) -> str:
    """`25.80 EUR, 10 UGX`."""
    return ", ".join(f"{amount} {currency}" for currency, amount in held)


@handler("incident", within=GIVEN_UP_AFTER, soon=True)
def mail_operators(notification: Notification) -> None:
    """Send one mail under a stable Message-ID; none if OPERATOR_EMAILS is empty."""
    recipients = list(conf.get().operator_emails)
    rows = list(Incident.objects.filter(pk__in=notification.payload["incidents"]).order_by("pk"))
    if not recipients or not rows:
        return
    event = str(notification.payload.get("event", "opened"))
    ids = "-".join(str(row.pk) for row in rows[:3])
    EmailMessage(
        subject=subject(rows, event),
        body="\n\n".join(paragraph(row, event) for row in rows),
        to=recipients,
        headers={"Message-ID": f"<incident-{ids}-{notification.pk}@{mail_domain()}>", "X-Incident-ID": ids},
    ).send()


def subject(rows: list[Incident], event: str) -> str:
    """What has happened to these incidents, on one line."""
    if len(rows) > 1:
        words = {
            "opened": _("%(n)d incidents have opened"),
            "worse": _("%(n)d incidents are critical now"),
            "again": _("%(n)d incidents stand again"),
            "closed": _("%(n)d incidents are over"),
        }.get(event, "%(n)d")
        return words % {"n": len(rows)}
    words = {
        "opened": _("Incident, %(severity)s: %(title)s"),
        "worse": _("Incident, now %(severity)s: %(title)s"),
        "again": _("Incident, stands again, %(severity)s: %(title)s"),
        "closed": _("Over: %(title)s"),
        "acknowledged": _("Acknowledged: %(title)s"),
    }.get(event, "%(title)s")
    told = words % {"severity": rows[0].get_severity_display(), "title": rows[0].title}
    return " ".join(told.split())[:200]


def paragraph(row: Incident, event: str) -> str:
    """What an operator wants to know of this incident first, with its link."""
    lines = [row.title, ""]
    if event == "closed" or row.closed_at is not None:
        lines.append(_("From %(began)s to %(end)s.") % {"began": utc(row.opened_at), "end": utc(row.closed_at)})
    else:
        lines.append(_("Since %(began)s.") % {"began": utc(row.opened_at)})
        if row.orders:
            lines.append(ngettext("It holds %(n)d order.", "It holds %(n)d orders.", row.orders) % {"n": row.orders})
        held = lifecycle.held(lifecycle.runs_of(row.kind, row.cause))
        if held:
            lines.append(_("They are worth %(amounts)s.") % {"amounts": amounts(held)})
    return "\n".join([*lines, "", link(row.pk)])
