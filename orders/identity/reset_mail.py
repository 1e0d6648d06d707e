"""The mail with a link to choose a new password. The outbox sends it: the text is Django's, the link is made when it is sent."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib.auth.forms import PasswordResetForm
from django.contrib.auth.tokens import default_token_generator
from django.core.mail import EmailMessage
from django.template.loader import render_to_string
from django.utils.encoding import force_bytes
from django.utils.http import urlsafe_base64_encode
from django.utils.translation import get_language, override

from orders.accounts.mails import VALID_FOR
from supervision.models import Notification
from supervision.outbox.notifications import handler, mail_domain

KIND = "new-password"


def ask(address: str) -> None:
    """Queue the mail, also for an address without an account: the answer and its time are the same."""
    Notification.objects.create(kind=KIND, payload={"email": address, "language": get_language()})


@handler(KIND, within=VALID_FOR, soon=True)
def send(notification: Notification) -> None:
    """Send a mail to each account with the address, if it may choose a password. The mail server's errors are raised."""
    with override(notification.payload["language"]):
        for account in PasswordResetForm().get_users(notification.payload["email"]):
            _send(notification, account)


def _send(notification: Notification, account: Any) -> None:
    protocol, _, site = settings.PUBLIC_URL.partition("://")
    facts = {
        "user": account,
        "uid": urlsafe_base64_encode(force_bytes(account.pk)),
        "token": default_token_generator.make_token(account),
        "protocol": protocol,
        "domain": site,
        "site_name": site,
    }
    EmailMessage(
        subject=" ".join(render_to_string("registration/password_reset_subject.txt", facts).split()),
        body=render_to_string("registration/password_reset_email.html", facts),
        to=[account.email],
        headers={"Message-ID": f"<{KIND}.{notification.pk}.{account.pk}@{mail_domain()}>"},
    ).send()
