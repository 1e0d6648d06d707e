"""What each kind of channel gets: a mail, a signed webhook, a message of Slack's incoming webhooks, an event of PagerDuty's Events v2."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.mail import EmailMessage
from django.utils.translation import gettext as _

from supervision.incidents import lifecycle
from supervision.models import Channel, Incident, Telling
from supervision.outbox.incident_mail import link, paragraph, subject
from supervision.outbox.notifications import mail_domain

PAGERDUTY = "https://events.pagerduty.com/v2/enqueue"
TEST = "test"
_ACTIONS = {"acknowledged": "acknowledge", "closed": "resolve"}


def message_id(telling: Telling) -> str:
    """The same for every try."""
    return f"msg_incident_{telling.pk}"


def mail(channel: Channel, telling: Telling, incident: Incident | None) -> EmailMessage:
    """The mail to the channel's receivers."""
    return EmailMessage(
        subject=title(telling, incident),
        body=paragraph(incident, telling.event) if incident else f"{_('A test of this channel.')}\n\n{home()}",
        to=receivers(channel.address),
        headers={"Message-ID": f"<{message_id(telling)}@{mail_domain()}>", "X-Incident-ID": str(telling.incident_id or TEST)},
    )


def receivers(address: str) -> list[str]:
    """The addresses of a mail channel."""
    return [part.strip() for part in address.split(",") if part.strip()]


def body(channel: Channel, telling: Telling, incident: Incident | None) -> str:
    """The JSON that is posted to the channel."""
    makers = {Channel.Kind.SLACK.value: _slack, Channel.Kind.PAGERDUTY.value: _pagerduty}
    return json.dumps(makers.get(channel.kind, _webhook)(channel, telling, incident))


def title(telling: Telling, incident: Incident | None) -> str:
    """One line about what has happened."""
    if incident:
        return subject([incident], telling.event)
    return _("A test of the channel %(name)s") % {"name": " ".join(telling.channel.name.split())}


def home() -> str:
    """The address of the console, under PUBLIC_URL."""
    return link(0).rpartition("/supervision/")[0] + "/"


def _address(incident: Incident | None) -> str:
    return link(incident.pk) if incident else home()


def _webhook(_channel: Channel, telling: Telling, incident: Incident | None) -> dict[str, Any]:
    facts: dict[str, Any] = {"title": title(telling, incident), "link": _address(incident)}
    if incident is not None:
        held = lifecycle.held(lifecycle.runs_of(incident.kind, incident.cause)) if incident.closed_at is None else []
        facts = {
            "incident": incident.pk, "kind": incident.kind, "cause": incident.cause, "title": incident.title,
            "severity": incident.severity, "orders": incident.orders,
            "held": [{"amount": str(amount), "currency": currency} for currency, amount in held],
            "opened_at": incident.opened_at.isoformat(), "closed_at": incident.closed_at and incident.closed_at.isoformat(),
            "acknowledged_by": incident.acknowledged_by or None, "link": link(incident.pk),
        }  # fmt: skip
    return {"type": f"incident.{telling.event}", "timestamp": telling.created_at.isoformat(), "data": facts}


def _slack(_channel: Channel, telling: Telling, incident: Incident | None) -> dict[str, Any]:
    words = [escaped(title(telling, incident))]
    if incident is not None and incident.closed_at is None and incident.orders:
        words.append(escaped(_("Orders it holds: %(n)d") % {"n": incident.orders}))
    return {"text": "\n".join([*words, f"<{_address(incident)}|{_('Open in the console')}>"])}


def escaped(text: str) -> str:
    """Text as Slack shows it: names in it notify no user and make no link."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _pagerduty(channel: Channel, telling: Telling, incident: Incident | None) -> dict[str, Any]:
    source = urlsplit(str(getattr(settings, "PUBLIC_URL", ""))).netloc or "orders"
    said: dict[str, Any] = {
        "routing_key": channel.secret,
        "event_action": _ACTIONS.get(telling.event, "trigger"),
        "dedup_key": f"{source}/incident/{telling.incident_id or f'test-{telling.pk}'}"[:255],
    }
    if said["event_action"] != "trigger":
        return said
    details = {"kind": incident.kind, "cause": incident.cause, "orders": incident.orders} if incident else {}
    return {
        **said,
        "payload": {
            "summary": title(telling, incident)[:1024],
            "source": source,
            "severity": incident.severity if incident else "info",
            "timestamp": (incident.opened_at if incident else telling.created_at).isoformat(),
            "component": incident.resource if incident else "",
            "class": incident.kind if incident else TEST,
            "custom_details": details,
        },
        "links": [{"href": _address(incident), "text": _("Open in the console")}],
    }
