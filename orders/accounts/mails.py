"""Mails with a link that proves who owns a mail address. The outbox sends them. The link is made when the mail is sent, and not stored.

A visitor who asks for a mail cannot learn whether there is an account with the address: the answer and its cost are the same.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.conf import settings
from django.core import signing
from django.core.mail import EmailMessage
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import override

from orders.accounts.signing_in import is_taken
from orders.api.throttling import counted
from supervision.models import Notification
from supervision.outbox.notifications import handler, mail_domain

SIGN_UP, CONFIRM = "sign-up", "confirm-email"
VALID_FOR = timedelta(days=1)
MOST_AN_HOUR = 5  # mails to one address; asked for from one network: four times as many


def ask(kind: str, address: str, network: str, **facts: Any) -> bool:
    """Queue a mail to this address; False if there were too many within an hour."""
    if too_many(address, network):
        return False
    Notification.objects.create(kind=kind, payload={"email": address, **facts})
    return True


def too_many(address: str, network: str) -> bool:
    """Count a mail to this address; whether there were too many to it, or asked for from this network, within an hour."""
    to, by = counted([f"mail:{address.lower()}", f"mails-by:{network}"], seconds=3600)
    return to > MOST_AN_HOUR or by > 4 * MOST_AN_HOUR


def token(kind: str, **facts: Any) -> str:
    """A signed text with these facts."""
    return signing.dumps(facts, salt=f"orders.accounts.{kind}", compress=True)


def facts_of(kind: str, said: str) -> dict[str, Any] | None:
    """The facts of a token of this kind; None if it is too old or not ours."""
    try:
        found = signing.loads(said, salt=f"orders.accounts.{kind}", max_age=VALID_FOR)
    except signing.BadSignature:
        return None
    return found if isinstance(found, dict) else None


@handler(SIGN_UP, within=VALID_FOR, soon=True)
def send_sign_up(notification: Notification) -> None:
    """The link that opens the account; if there is one with this address already, how to get into it."""
    facts = notification.payload
    with override(facts.get("language")):
        if is_taken(facts["email"]):
            lines = [
                _("you wanted to open an account with this address, and you have one already."),
                _("Sign in here: %(link)s") % {"link": _address("login")},
                _("If you have forgotten your password, choose a new one here: %(link)s") % {"link": _address("password_reset")},
            ]
            _send(notification, _("You have an account already"), lines)
            return
        link = _address("orders:signup-confirm", token(SIGN_UP, email=facts["email"], nonce=facts["nonce"]))
        lines = [
            _("open your account with this link: %(link)s") % {"link": link},
            _("It is valid for one day. If you did not ask for it, ignore this mail: no account is opened."),
        ]
        _send(notification, _("Open your account"), lines)


@handler(CONFIRM, within=VALID_FOR, soon=True)
def send_confirm(notification: Notification) -> None:
    """The link by which an account's owner confirms its mail address."""
    facts = notification.payload
    with override(facts.get("language")):
        link = _address("orders:email-confirm", token(CONFIRM, email=facts["email"], account=facts["account"]))
        lines = [
            _("confirm that this is your address: %(link)s") % {"link": link},
            _("It is valid for one day, and you have to be signed in. If you did not ask for it, ignore this mail."),
        ]
        _send(notification, _("Confirm your e-mail address"), lines)


def _address(name: str, *args: str) -> str:
    return settings.PUBLIC_URL + reverse(name, args=args)


def _send(notification: Notification, subject: str, lines: list[str]) -> None:
    """Send it. The mail server's errors are raised: the outbox tries again."""
    EmailMessage(
        subject=subject,
        body="\n\n".join([_("Hello,"), *lines]),
        to=[notification.payload["email"]],
        headers={"Message-ID": f"<{notification.kind}.{notification.pk}@{mail_domain()}>"},
    ).send()
