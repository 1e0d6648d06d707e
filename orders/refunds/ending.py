"""The end of a refund: the books hear of it, and its credit note is queued, in the transaction that ends its run.

They heard of a failed refund when it was made, so they hear nothing when it is paid again, and it has its credit note. Then its
finding is to be closed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orders import accounting
from orders.documents import crediting
from orders.payments import told
from orders.payments.codes import PAYOUT
from orders.refunds.codes import REPLACED
from orders.returns.codes import REFUND, amount_said
from supervision.journal import entries
from supervision.models import Notification
from supervision.postgres import db
from supervision.workflow import ClosedRun

# k: what a step that could not tell has paid by the ledger, where its undo was not done.
_FACTS = """
SELECT f.public_id, f.order_key, f.number, f.amount::text, f.currency,
       coalesce(a.amount::numeric(18, 2)::text, s.result->>'refunded', k.amount::text),
       s.result->>'intent', f.replaces, f.asked_by, f.reason,
       a.id IS NOT NULL OR k.amount IS NOT NULL OR (s.run_id IS NOT NULL AND u.process_state || '' IS DISTINCT FROM 'Processed')
  FROM orders_refund f JOIN supervision_run r ON r.key = f.public_id
  LEFT JOIN supervision_stepstate s
    ON s.run_id = r.id AND s.direction = 'do' AND s.name = %(step)s AND s.process_state || '' = 'Processed'
  LEFT JOIN supervision_stepstate u ON u.run_id = r.id AND u.direction = 'undo' AND u.name = %(step)s
  LEFT JOIN LATERAL (
       SELECT sum(e.amount)::numeric(18, 2) AS amount FROM supervision_effect e
        WHERE e.run_id = r.id AND e.direction = 'do' AND e.operation = %(step)s AND e.service = 'payment' AND e.outcome = 'done') k
    ON s.run_id IS NULL AND u.process_state || '' <> 'Processed'
  LEFT JOIN orders_paymentadjustment a ON a.external_id = %(payout)s || f.public_id AND a.gives_back
 WHERE f.public_id = ANY (%(refunds)s::text[]) AND (s.run_id IS NOT NULL OR a.id IS NOT NULL OR k.amount IS NOT NULL)
"""


def record_processed(runs: Sequence[ClosedRun]) -> None:
    """Record what was paid back. A refund whose payment was skipped has paid nothing: no credit note, and it closes no finding."""
    told.ended(runs)
    _tell(_facts(runs))


def record_cancelled(runs: Sequence[ClosedRun]) -> None:
    """Record the refunds that stay paid although they were cancelled. Where the undo was completed, the money came back: none of it."""
    told.ended(runs)
    _tell([one for one in _facts(runs) if one[-1] and amount_said(one[5])])


def _facts(runs: Sequence[ClosedRun]) -> list[tuple[Any, ...]]:
    return db.fetch(_FACTS, {"refunds": [run.key for run in runs], "step": REFUND, "payout": PAYOUT})


def _tell(facts: Sequence[tuple[Any, ...]]) -> None:
    entries.append(
        accounting.KEY,
        [
            (
                accounting.PARTLY_REFUNDED,
                f"{key}:refunded",
                {
                    "order": order,
                    "refund": key,
                    "number": number,
                    "amount": amount,
                    "refunded": str(amount_said(refunded)),
                    "currency": currency,
                    "charge": charge,
                },
            )
            for key, order, number, amount, currency, refunded, charge, replaces, *_rest in facts
            if not replaces
        ],
    )
    if paid := [
        crediting.credited(order, key, number, amount_said(refunded))
        for key, order, number, _amount, _currency, refunded, _charge, replaces, *_rest in facts
        if not replaces and amount_said(refunded) > 0
    ]:
        Notification.objects.create(kind=accounting.ISSUE_REFUND_NOTES, payload={"refunds": paid})
    Notification.objects.bulk_create(
        Notification(kind=REPLACED, payload={"order": order, "refund": replaces, "by": by, "reason": reason})
        for _key, order, _number, _amount, _currency, refunded, _charge, replaces, by, reason, _out in facts
        if replaces and amount_said(refunded)
    )
