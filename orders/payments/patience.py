"""What becomes of an order whose payment stays refused: its customer is told and reminded, then it is cancelled and its stock released.

Each refusal queues three notifications of the outbox, in the transaction that records it: a mail after PAYMENT_MAIL_AFTER, because a
customer may have left the page before a late refusal; another mail after a third of PAYMENT_PATIENCE; and the cancellation at its
end. All carry the attempt that was refused. If the step has run again since, or the order has ended, they do nothing; another
refusal has queued its own. The outbox finds due ones by its index, gives each to one process, and repeats what failed. The
cancellation carries the version of the order that was judged, so a customer who pays at that moment is not cancelled: of the two,
the first one wins. If a bank transfer has come meanwhile, the order is not cancelled: its payment runs again, as a transfer, and
takes what has come.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.core.mail import EmailMessage
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from orders.agents import payment_transfer
from orders.formats import moment, speaking
from orders.payments import codes
from supervision.errors import ChangedMeanwhile, Refused, UnknownRun
from supervision.models import Notification
from supervision.operations import operator_verbs, previews
from supervision.operations.audit_log import Exempt
from supervision.outbox.notifications import handler, mail_domain
from supervision.postgres import db
from supervision.workflow import ClosedRun

TELL, REMINDER, END = "payment-refused", "payment-reminder", "payment-patience"
REMIND_AT = 1 / 3  # of the patience
MAIL_TRIED_FOR = timedelta(days=3)

_BEGIN = """
INSERT INTO supervision_notification (kind, run_id, not_before, payload)
SELECT v.kind, r.id, now() + v.seconds * interval '1 s',
       jsonb_build_object('order', r.key, 'number', o.number, 'attempt', s.attempt, 'email', r.payload->>'email',
                          'language', r.payload->>'language',
                          'until', now() + %(patience)s::float8 * interval '1 s')
  FROM supervision_alert a
  JOIN supervision_run r ON r.id = a.run_id
  JOIN orders_order o ON o.run_id = r.id
  JOIN supervision_stepstate s ON s.run_id = a.run_id AND s.direction = a.direction AND s.position = a.position
 CROSS JOIN unnest(%(kinds)s::text[], %(seconds)s::float8[]) v(kind, seconds)
 WHERE a.run_id = ANY (%(runs)s::bigint[]) AND a.direction = 'do' AND a.kind = 'error' AND a.closed_at IS NULL
   AND a.step = ANY (%(steps)s::text[]) AND a.code = ANY (%(codes)s)
"""
_STILL_REFUSED = """
SELECT true FROM supervision_run r
  JOIN supervision_stepstate s ON s.run_id = r.id AND s.direction = 'do' AND s.name = ANY (%(steps)s::text[])
  JOIN supervision_alert a ON a.run_id = r.id AND a.direction = 'do' AND a.position = s.position AND a.kind = 'error'
   AND a.closed_at IS NULL AND a.code = ANY (%(codes)s)
 WHERE r.key = %(order)s AND r.process_state = 'Error' AND r.direction = 'do' AND s.process_state || '' = 'Error'
   AND s.attempt = %(attempt)s
"""


def begin(runs: Sequence[ClosedRun]) -> None:
    """Queue the mails and the cancellation of those of these stopped orders whose payment was refused, in their transaction."""
    db.fetch(
        _BEGIN,
        {
            "runs": [run.run_id for run in runs],
            "patience": settings.PAYMENT_PATIENCE,
            "kinds": [TELL, REMINDER, END],
            "seconds": [settings.PAYMENT_MAIL_AFTER, settings.PAYMENT_PATIENCE * REMIND_AT, settings.PAYMENT_PATIENCE],
            "steps": list(codes.STEPS),
            "codes": sorted(codes.REFUSALS),
        },
    )


def _still_refused(notification: Notification) -> bool:
    facts = {"order": notification.payload["order"], "attempt": notification.payload["attempt"]}
    return bool(db.run(_STILL_REFUSED, {**facts, "steps": list(codes.STEPS), "codes": sorted(codes.REFUSALS)}))


@handler(TELL, within=timedelta(seconds=settings.PAYMENT_MAIL_AFTER) + MAIL_TRIED_FOR)
def tell(notification: Notification) -> None:
    """Tell the customer that the payment was refused, if it still is."""
    _mail(notification, gettext_lazy("The payment of your order %(number)s was refused"))


@handler(REMINDER, within=timedelta(seconds=settings.PAYMENT_PATIENCE * REMIND_AT) + MAIL_TRIED_FOR)
def remind(notification: Notification) -> None:
    """Remind the customer, if the payment is still refused."""
    _mail(notification, gettext_lazy("Your order %(number)s is not paid yet"))


def _mail(notification: Notification, subject: Any) -> None:
    """Mail the customer, if the payment is still refused and no transfer has come.

    The mail server's errors are raised: the outbox tries again.
    """
    facts = notification.payload
    if facts["email"] and _still_refused(notification) and not payment_transfer.not_taken(facts["order"]):
        with speaking(facts.get("language")):
            _message(notification.kind, str(subject), facts).send()


def _message(kind: str, subject: str, facts: Mapping[str, Any]) -> EmailMessage:
    words = {"number": facts["number"], "until": moment(datetime.fromisoformat(facts["until"]))}
    return EmailMessage(
        subject=subject % words,
        body="\n\n".join(
            [
                _("Hello,"),
                _("the payment of your order %(number)s was refused, and nothing was charged.") % words,
                _("You can pay in another way here: %(link)s") % {"link": f"{settings.PUBLIC_URL}/orders/{facts['order']}/"},
                _("Otherwise we cancel the order on %(until)s.") % words,
            ]
        ),
        to=[facts["email"]],
        headers={"Message-ID": f"<{facts['order']}.{facts['attempt']}.{kind}@{mail_domain()}>", "X-Order-ID": facts["order"]},
    )


@handler(END)
def end(notification: Notification) -> None:
    """Cancel the order, if the payment is still refused and no transfer has come.

    Raises ChangedMeanwhile if the order changed just now: the outbox looks again.
    """
    key = notification.payload["order"]
    try:
        seen = previews.plan(key, "compensate")
        if not _still_refused(notification):
            return
        facts: dict[str, Any] = {"by": Exempt("the shop"), "plan_version": seen.version}
        if payment_transfer.not_taken(key):
            again = {"payment_method": codes.BANK_TRANSFER}
            operator_verbs.resubmit(key, reason=_("a bank transfer has come for it"), amend=again, **facts)
        else:
            operator_verbs.compensate(key, reason=_("its payment stayed refused"), **facts)
    except ChangedMeanwhile:
        raise
    except (Refused, UnknownRun):
        return  # it has ended, or is being undone
