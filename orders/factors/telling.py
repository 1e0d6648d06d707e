"""Mails that tell an account's owner that what signs it in was changed: second factors, recovery codes, the password.

The owner may not be who changed it. So the mail goes to the address that the account had at that moment, and holds no link that
changes anything by itself.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.core.mail import EmailMessage
from django.db.models.signals import post_save
from django.dispatch import receiver
from django.urls import reverse
from django.utils.translation import get_language, override
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop as _n

from supervision.models import Notification
from supervision.outbox.notifications import handler, mail_domain

KIND = "sign-in-changed"
GIVEN_UP_AFTER = timedelta(days=3)
APP_ADDED, PASSKEY_ADDED, APP_REMOVED, PASSKEY_REMOVED = "app-added", "passkey-added", "app-removed", "passkey-removed"
CODES_MADE, RESET, PASSWORD = "codes-made", "reset", "password"
_WORDS = {
    APP_ADDED: _n("an authenticator app was added to your account."),
    PASSKEY_ADDED: _n("a passkey was added to your account."),
    APP_REMOVED: _n("an authenticator app was removed from your account."),
    PASSKEY_REMOVED: _n("a passkey was removed from your account."),
    CODES_MADE: _n("new recovery codes were made for your account. The codes of before are not valid any more."),
    RESET: _n("an administrator removed all second factors and recovery codes of your account, and ended its sessions."),
    PASSWORD: _n("the password of your account was changed."),
}


def tell(account: Any, what: str) -> None:
    """Queue the mail about this change, in the caller's transaction. what: one of the words here. No address: no mail."""
    if account.email:
        Notification.objects.create(kind=KIND, payload={"email": account.email, "what": what, "language": get_language()})


@receiver(post_save, sender=User, dispatch_uid="orders.factors.telling")
def _password_changed(instance: User, created: bool, **kwargs: Any) -> None:
    """Django stores an old password under a better hash by itself; that is no new password."""
    if not created and getattr(instance, "_password", None) is not None:
        tell(instance, PASSWORD)


@handler(KIND, within=GIVEN_UP_AFTER, soon=True)
def send(notification: Notification) -> None:
    """Send the mail. The mail server's errors are raised: the outbox tries again."""
    facts = notification.payload
    changed = _WORDS[facts["what"]]
    with override(facts["language"]):
        lines = [
            _("Hello,"),
            _(changed),
            _("It happened at %(at)s, at %(site)s.") % {"at": f"{notification.created_at:%Y-%m-%d %H:%M} UTC", "site": settings.PUBLIC_URL},
            _("If that was not you, choose a new password here, and tell an administrator: %(link)s")
            % {"link": settings.PUBLIC_URL + reverse("password_reset")},
        ]
        EmailMessage(
            subject=_("The sign-in of your account has changed"),
            body="\n\n".join(lines),
            to=[facts["email"]],
            headers={"Message-ID": f"<{KIND}.{notification.pk}@{mail_domain()}>"},
        ).send()
