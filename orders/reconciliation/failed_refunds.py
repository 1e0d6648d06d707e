"""A refund that has failed after it was accepted becomes a finding as soon as a webhook tells of it, and so an incident.

`payment_news` queues a notification of the outbox with each look that shows a failed refund. Its delivery judges the order as the
nightly comparison does. While the order or one of its returns is under way, their steps may pay back themselves: then it judges what is
there, and looks again after LOOK_AGAIN. Repeated, early and overtaken events change nothing: what counts is the look.
"""

from __future__ import annotations

from datetime import timedelta

from django.db.models.functions import Now

from orders.agents.payment_news import REFUND_FAILED
from orders.reconciliation import again
from orders.reconciliation.asking import SETTLING_SECONDS, asking
from orders.reconciliation.charges import SERVICE
from orders.reconciliation.payment import PaymentSource, Suspect
from orders.refunds.codes import REPLACED
from supervision.ledger import reconciliation
from supervision.ledger.reconciliation import REFUND, Found
from supervision.models import Finding, Notification
from supervision.operations.audit_log import Exempt
from supervision.outbox.notifications import handler
from supervision.postgres import db

KIND = "refund_failed"
LOOK_AGAIN = timedelta(minutes=10)

_UNDER_WAY = """
SELECT EXISTS (SELECT FROM supervision_run r WHERE r.key = %(order)s AND r.finished_at IS NULL)
    OR EXISTS (SELECT FROM (SELECT public_id, order_key FROM orders_return UNION ALL SELECT public_id, order_key FROM orders_refund) t
                JOIN supervision_run r ON r.key = t.public_id AND r.finished_at IS NULL
                JOIN supervision_stepstate s ON s.run_id = r.id AND s.direction = 'do' AND s.name = 'refund-part' AND s.attempt > 0
                WHERE t.order_key = %(order)s)
"""


@handler(REPLACED, calls=True)
def close(notification: Notification) -> None:
    """Close the finding of a failed refund that a run has paid again, in the name of who asked for it, and write both into our books.

    A finding that is still there stays open: the payment step was completed by hand, and an operator decides.
    """
    facts = notification.payload
    found = Found(kind=KIND, order=facts["order"], external_id=facts["refund"])
    row = Finding.objects.filter(service=SERVICE, kind=KIND, order_key=found.order, external_id=found.external_id, closed_at=None).first()
    if row is not None and not PaymentSource().again([found]):
        reconciliation.settle(row.pk, REFUND, by=Exempt(facts["by"]), reason=facts["reason"])
    elif row is None and found.external_id.startswith("re_"):  # a comparison has closed it
        with asking(SETTLING_SECONDS):
            again.note(found, facts["by"])


@handler(REFUND_FAILED, calls=True)
def judge(notification: Notification) -> None:
    """Note the failed refunds of one order that are owed to its customer. CannotCompare is raised: the outbox tries again."""
    facts = notification.payload
    under_way = db.run(_UNDER_WAY, {"order": facts["order"]})[0][0]
    source = PaymentSource()
    with asking(SETTLING_SECONDS):
        found = [one for one in source.closely([Suspect(facts["order"], {facts["intent"]})]) if one.kind == KIND]
    reconciliation.note(SERVICE, found)
    if under_way:
        Notification.objects.create(kind=REFUND_FAILED, payload=facts, not_before=Now() + LOOK_AGAIN)
