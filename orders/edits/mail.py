"""The mail to a customer whose order has become smaller, sent through the outbox: at least once, each try with the same Message-ID."""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.core.mail import EmailMessage
from django.utils.translation import gettext as _

from orders.edits.codes import CHANGED
from orders.edits.lines import Change
from orders.formats import money, speaking
from orders.intake import number_of
from supervision.models import Notification, Run
from supervision.outbox.notifications import handler, mail_domain

TRIED_FOR = timedelta(days=3)


def queue(run: Run, change: Change) -> None:
    """Queue the mail about this change, in its transaction."""
    if not run.payload.get("email"):
        return
    Notification.objects.create(
        kind=CHANGED,
        run_id=run.pk,
        payload={
            "order": run.key,
            "number": number_of(run.payload, run.pk),
            "email": run.payload["email"],
            "language": run.payload.get("language"),
            "lines": [[line["quantity"], line["name"]] for line in change.lines],
            "before": str(change.before),
            "total": str(change.total),
            "currency": change.currency,
        },
    )


@handler(CHANGED, within=TRIED_FOR)
def send(notification: Notification) -> None:
    """Mail the customer. The mail server's errors are raised: the outbox retries, or gives up after a permanent refusal."""
    facts = notification.payload
    with speaking(facts.get("language")):
        _message(notification).send()


def _message(notification: Notification) -> EmailMessage:
    facts = notification.payload
    words = {name: money(facts[name], facts["currency"]) for name in ("before", "total")} | {"number": facts["number"]}
    return EmailMessage(
        subject=_("Your order %(number)s was changed") % words,
        body="\n\n".join(
            [
                _("Hello,"),
                _("your order %(number)s was changed. It now has:") % words,
                "\n".join(f"{quantity} x {name}" for quantity, name in facts["lines"]),
                _("It costs %(total)s instead of %(before)s. Nothing was charged before.") % words,
                _("You see it here: %(link)s") % {"link": f"{settings.PUBLIC_URL}/orders/{facts['order']}/"},
            ]
        ),
        to=[facts["email"]],
        headers={"Message-ID": f"<{facts['order']}.{notification.pk}.{CHANGED}@{mail_domain()}>", "X-Order-ID": facts["order"]},
    )
