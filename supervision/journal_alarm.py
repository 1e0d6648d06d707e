"""Tells the operators, by mail through the outbox, when the journal cannot be written: once per trouble, not per try."""

from __future__ import annotations

from email.utils import parseaddr

from django.conf import settings
from django.core.mail import EmailMessage
from django.utils.translation import gettext as _

from supervision import conf
from supervision.journal_store import TROUBLE
from supervision.models import Notification
from supervision.notifications import handler


@handler(TROUBLE)
def mail_operators(notification: Notification) -> None:
    """One mail under a stable Message-ID."""
    recipients = list(conf.get().operator_emails)
    if not recipients:
        return
    domain = parseaddr(settings.DEFAULT_FROM_EMAIL)[1].rpartition("@")[2] or "localhost"
    EmailMessage(
        subject=_("The journal %(key)s needs a look") % notification.payload,
        body=notification.payload["message"],
        to=recipients,
        headers={"Message-ID": f"<{TROUBLE}-{notification.pk}@{domain}>"},
    ).send()
