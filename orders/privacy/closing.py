"""The end of an account: no one signs in any more, its tokens and sessions end, and at last its row names no one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from django.conf import settings
from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import User
from django.core.mail import EmailMessage
from django.utils.translation import gettext as _
from django.utils.translation import override
from knox.models import AuthToken

from orders.models import SavedAddress, VerifiedEmail
from supervision.models import Notification
from supervision.outbox.notifications import handler, mail_domain

CLOSED = "account-closed"
TRIED_FOR = timedelta(hours=1)


def close(accounts: Sequence[int], erasure: int, language: str | None) -> None:
    """Close these accounts, and queue the last mail to each, in the caller's transaction."""
    AuthToken.objects.filter(user__in=accounts).delete()
    for account in User.objects.filter(pk__in=accounts).select_for_update().order_by("pk"):
        if account.email:
            facts = {"email": account.email, "erasure": erasure, "language": language}
            Notification.objects.create(kind=CLOSED, payload=facts)
        account.is_active = False
        account.save(update_fields=["is_active"])


def tells(erasure: int) -> bool:
    """Whether a last mail of this erasure waits to be sent."""
    return Notification.objects.filter(kind=CLOSED, payload__erasure=erasure, delivered_at=None, given_up_at=None).exists()


def forget(accounts: Sequence[int]) -> int:
    """Take everything personal out of these accounts, in the caller's transaction. The rows stay, because orders refer to them."""
    VerifiedEmail.objects.filter(account__in=accounts).delete()
    SavedAddress.objects.filter(account__in=accounts).delete()
    for pk in accounts:
        User.groups.through.objects.filter(user_id=pk).delete()
        User.objects.filter(pk=pk).update(
            username=f"erased-{pk}", first_name="", last_name="", email="", password=make_password(None), is_active=False, last_login=None
        )
    return len(accounts)


@handler(CLOSED, within=TRIED_FOR)
def send_closed(notification: Notification) -> None:
    """The last mail to the owner of an account."""
    facts = notification.payload
    with override(facts.get("language")):
        lines = [
            _("your account is closed, and your data is being erased."),
            _("Orders that are on their way still reach you. Invoices are kept for %(years)d years, because the law asks for it.")
            % {"years": settings.DOCUMENT_YEARS},
            _("You get no further mail from us."),
        ]
        headers = {"Message-ID": f"<{CLOSED}-{notification.pk}@{mail_domain()}>"}
        text = "\n\n".join([_("Hello,"), *lines]) + "\n"
        EmailMessage(subject=_("Your account is closed"), body=text, to=[facts["email"]], headers=headers).send()
