"""Closes an account: sign-in is refused, its tokens and sessions end, and its row names no person any more."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount
from django.conf import settings
from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import User
from django.core.mail import EmailMessage
from django.db.models import Q
from django.utils.translation import gettext as _
from django.utils.translation import override
from knox.models import AuthToken

from orders.models import SavedAddress, VerifiedEmail
from supervision.models import Notification
from supervision.outbox.notifications import handler, mail_domain

CLOSED = "account-closed"
TRIED_FOR = timedelta(hours=1)


def close(accounts: Sequence[int], erasure: int, language: str | None) -> None:
    """Close these accounts, take everything personal out of them, and queue the last mail to each, in the caller's transaction.

    The rows stay, because orders refer to them.
    """
    for account in User.objects.filter(pk__in=accounts).select_for_update().order_by("pk"):
        if account.email:
            facts = {"email": account.email, "erasure": erasure, "language": language}
            Notification.objects.create(kind=CLOSED, payload=facts)
        for rows in (AuthToken, Authenticator, SocialAccount):
            rows.objects.filter(user=account).delete()
        for rows in (VerifiedEmail, SavedAddress):
            rows.objects.filter(account=account).delete()
        account.groups.clear()
        account.username = f"erased-{account.pk}"
        account.first_name = account.last_name = account.email = ""
        account.password, account.is_active, account.last_login = make_password(None), False, None
        account.save()


def tells(erasure: int) -> bool:
    """Whether a last mail of this erasure waits to be sent."""
    return Notification.objects.filter(kind=CLOSED, payload__erasure=erasure, delivered_at=None, given_up_at=None).exists()


def forget(erasure: int) -> int:
    """Delete the last mails of this erasure, which were sent, and the other mails about accounts that were sent to their addresses.

    Such an address may be one that was never confirmed, which is looked for in no other place. Returns how many mails it were.
    """
    addresses = list(Notification.objects.filter(kind=CLOSED, payload__erasure=erasure).values_list("payload__email", flat=True))
    sent = Q(delivered_at__isnull=False) | Q(given_up_at__isnull=False)
    return Notification.objects.filter(sent, run_id__isnull=True, payload__email__in=addresses).delete()[0]


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
