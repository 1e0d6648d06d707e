"""The outbox: what is told to people and systems outside, after the commit that made it true, at least once.

A handler per kind does the telling, outside any transaction; what fails is tried again, later and later. A
notification's id is stable, so that a receiver can tell a repetition. Status messages, of which there are many, are not
told from here: `deliveries` makes a row for each receiver of them, and one dead receiver is no other's matter.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from email.utils import parseaddr

from django.conf import settings
from django.core.mail import EmailMessage
from django.utils.translation import gettext as _

from supervision import conf, db, storable
from supervision.models import Alert, Notification

log = logging.getLogger(__name__)

Handler = Callable[[Notification], None]
_handlers: dict[str, Handler] = {}

_CLAIM = """
WITH due AS MATERIALIZED (
    SELECT id FROM supervision_notification
     WHERE delivered_at IS NULL AND kind <> 'status' AND not_before <= now()
     ORDER BY not_before LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
UPDATE supervision_notification n
   SET tries = n.tries + 1, not_before = now() + least(5 * 2 ^ least(n.tries, 12), 3600) * interval '1 s'
  FROM due WHERE n.id = due.id
RETURNING n.id
"""


def handler(kind: str) -> Callable[[Handler], Handler]:
    """Register the function that delivers notifications of this kind. It raises where it could not."""

    def register(function: Handler) -> Handler:
        _handlers[kind] = function
        return function

    return register


def deliver_due(limit: int = 100, *, patience: float = 5.0) -> int:
    """Deliver what is due; returns how many were delivered. Each try leases its row for its back-off.

    One by one, so that the lease is not spent on waiting for the others. Begins nothing after `patience` seconds: a
    caller may have other things to do than to wait for a mail server. The rest stays due.
    """
    until = time.monotonic() + patience
    delivered = 0
    for _turn in range(limit):
        rows = db.run(_CLAIM, {"limit": 1})
        if not rows:
            break
        delivered += _deliver(Notification.objects.get(pk=rows[0][0]))
        if time.monotonic() > until:
            break
    return delivered


def _deliver(notification: Notification) -> bool:
    try:
        _handlers[notification.kind](notification)
    except Exception as error:
        words = storable.text(str(error))
        log.warning("notification %s (%s) was not delivered: %s", notification.pk, notification.kind, words)
        Notification.objects.filter(pk=notification.pk).update(last_error=words[:2000])
        return False
    db.run(
        "UPDATE supervision_notification SET delivered_at = now(), last_error = '' WHERE id = %(id)s",
        {"id": notification.pk},
    )
    return True


@handler("alert")
def mail_operators(notification: Notification) -> None:
    """Tell the operators of an alert, by one mail under a stable Message-ID."""
    recipients = list(conf.get().operator_emails)
    if not recipients:
        return
    alert = Alert.objects.select_related("run").get(pk=notification.payload["alert"])
    domain = parseaddr(settings.DEFAULT_FROM_EMAIL)[1].rpartition("@")[2] or "localhost"
    EmailMessage(
        subject=_("%(kind)s: %(step)s of order %(order)s") % {"kind": alert.get_kind_display(), "step": alert.step, "order": alert.run.key},
        body=_("%(message)s\n\nOrder: %(order)s\nStep: %(step)s\nRaised at: %(at)s")
        % {
            "message": alert.message,
            "order": alert.run.key,
            "step": alert.step,
            "at": alert.raised_at.isoformat(),
        },
        to=recipients,
        headers={"Message-ID": f"<alert-{alert.pk}-{alert.run.key}@{domain}>", "X-Alert-ID": str(alert.pk)},
    ).send()
