"""The end of a return: what it holds is free again if it was cancelled, the books hear of it, and so does the customer.

The hooks of the workflow `return-goods`. They write in the transaction that ends the run; the mail is sent afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.core.mail import EmailMessage
from django.utils.translation import gettext as _

from orders import accounting
from orders.formats import speaking
from orders.mails.codes import leads_to_someone
from orders.payments import told
from orders.payments.codes import PAYOUT
from orders.returns import codes
from supervision.journal import entries
from supervision.models import Notification
from supervision.outbox.notifications import handler, mail_domain
from supervision.postgres import db
from supervision.workflow import ClosedRun

RETURN_CANCELLED = "return-cancelled"
MAIL_TRIED_FOR = timedelta(days=3)

_LOCK = """
SELECT FROM orders_returnable r
 WHERE r.order_key IN (SELECT order_key FROM orders_return WHERE public_id = ANY (%(returns)s::text[]))
 ORDER BY r.order_key, r.sku FOR NO KEY UPDATE
"""
_FREE = """
WITH held AS MATERIALIZED (
    SELECT l.id, t.order_key, l.sku, l.holds FROM orders_returnline l JOIN orders_return t ON t.id = l.of_id
     WHERE t.public_id = ANY (%(returns)s::text[]) AND l.holds > 0 ORDER BY l.id FOR NO KEY UPDATE OF l),
freed AS (UPDATE orders_returnline l SET holds = 0 FROM held WHERE l.id = held.id)
UPDATE orders_returnable r SET returned = r.returned - f.pieces
  FROM (SELECT order_key, sku, sum(holds) AS pieces FROM held GROUP BY order_key, sku) f
 WHERE r.order_key = f.order_key AND r.sku = f.sku
"""
# k: what a step that could not tell has paid by the ledger, where its undo was not done.
_FACTS = """
SELECT t.public_id, t.order_key, t.number, t.currency, coalesce(sum(l.accepted * l.unit_price), 0)::text,
       coalesce(sum(l.accepted), 0), coalesce(a.amount::numeric(18, 2)::text, refund.result->>'refunded', k.amount::text),
       refund.result->>'intent',
       a.id IS NOT NULL OR k.amount IS NOT NULL OR (refund.run_id IS NOT NULL AND undo.process_state || '' IS DISTINCT FROM 'Processed')
  FROM orders_return t JOIN orders_returnline l ON l.of_id = t.id
  JOIN supervision_run r ON r.key = t.public_id
  LEFT JOIN orders_paymentadjustment a ON a.external_id = %(payout)s || t.public_id AND a.gives_back
  LEFT JOIN supervision_stepstate refund
    ON refund.run_id = r.id AND refund.direction = 'do' AND refund.name = %(refund)s AND refund.process_state || '' = 'Processed'
  LEFT JOIN supervision_stepstate undo ON undo.run_id = r.id AND undo.direction = 'undo' AND undo.name = %(refund)s
  LEFT JOIN LATERAL (
       SELECT sum(e.amount)::numeric(18, 2) AS amount FROM supervision_effect e
        WHERE e.run_id = r.id AND e.direction = 'do' AND e.operation = %(refund)s AND e.service = 'payment' AND e.outcome = 'done') k
    ON refund.run_id IS NULL AND undo.process_state || '' <> 'Processed'
 WHERE t.public_id = ANY (%(returns)s::text[])
 GROUP BY t.id, refund.run_id, refund.result, undo.process_state, k.amount, a.id
"""


def record_processed(runs: Sequence[ClosedRun]) -> None:
    """Record what came back and what was paid for it, and queue the credit notes, in the transaction that ends these returns."""
    told.ended(runs)
    _tell(_facts(runs))


def _tell(facts: Sequence[tuple[Any, ...]]) -> None:
    entries.append(accounting.KEY, [_event(*one[:-1]) for one in facts])
    if accepted := [key for key, _order, _number, _currency, _worth, pieces, *_rest in facts if pieces]:
        Notification.objects.create(kind=accounting.ISSUE_CREDIT_NOTES, payload={"returns": accepted})


def _facts(runs: Sequence[ClosedRun]) -> list[tuple[Any, ...]]:
    return db.fetch(_FACTS, {"returns": [run.key for run in runs], "refund": codes.REFUND, "payout": PAYOUT})


def _event(key: str, order: str, number: str, currency: str, worth: str, pieces: int, refunded: str, charge: str) -> entries.Event:
    body = {
        "order": order,
        "return": key,
        "number": number,
        "pieces": pieces,
        "worth": worth,
        "refunded": str(codes.amount_said(refunded)),
        "currency": currency,
        "charge": charge,
    }
    return accounting.RETURNED, f"{key}:returned", body


def close_cancelled(runs: Sequence[ClosedRun]) -> None:
    """Free the pieces that these cancelled returns hold, and queue a mail for each customer.

    A return that stays paid keeps its pieces and is in the books, so they are not paid twice. It stays paid unless an operator has
    completed the undo of its refund, which says that the money came back.
    """
    told.ended(runs)
    paid = [one for one in _facts(runs) if one[-1] and codes.amount_said(one[6])]
    _tell(paid)
    runs = [run for run in runs if run.key not in {key for key, *_rest in paid}]
    returns = {"returns": [run.key for run in runs]}
    db.fetch(_LOCK, returns)
    db.fetch(_FREE, returns)
    Notification.objects.bulk_create(
        Notification(
            kind=RETURN_CANCELLED,
            run_id=run.run_id,
            payload={name: run.payload[name] for name in ("order", "number", "email")}
            | {"return": run.key, "language": run.payload.get("language")},
        )
        for run in runs
        if leads_to_someone(run.payload.get("email"))
    )


@handler(RETURN_CANCELLED, within=MAIL_TRIED_FOR)
def tell(notification: Notification) -> None:
    """Mail the customer. The mail server's errors are raised: the outbox tries again."""
    with speaking(notification.payload.get("language")):
        _message(notification.payload).send()


def _message(facts: Mapping[str, Any]) -> EmailMessage:
    return EmailMessage(
        subject=_("The return for your order %(number)s has ended") % facts,
        body="\n\n".join(
            [
                _("Hello,"),
                _("the return that you asked for has ended without a refund: the goods did not come in time, or it was cancelled."),
                _("You can ask for another return here: %(link)s") % {"link": f"{settings.PUBLIC_URL}/orders/{facts['order']}/"},
            ]
        ),
        to=[facts["email"]],
        headers={"Message-ID": f"<{facts['return']}.{RETURN_CANCELLED}@{mail_domain()}>", "X-Order-ID": facts["order"]},
    )
