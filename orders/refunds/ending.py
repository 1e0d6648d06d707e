"""The end of a refund: the books hear of it, in the transaction that ends its run."""

from __future__ import annotations

from collections.abc import Sequence

from orders import accounting
from orders.returns.codes import REFUND, amount_said
from supervision.journal import entries
from supervision.postgres import db
from supervision.workflow import ClosedRun

_FACTS = """
SELECT f.public_id, f.order_key, f.number, f.amount::text, f.currency, s.result->>'refunded', s.result->>'intent'
  FROM orders_refund f JOIN supervision_run r ON r.key = f.public_id
  JOIN supervision_stepstate s ON s.run_id = r.id AND s.direction = 'do' AND s.name = %(step)s AND s.process_state || '' = 'Processed'
 WHERE f.public_id = ANY (%(refunds)s::text[])
"""


def record_processed(runs: Sequence[ClosedRun]) -> None:
    """Record what was paid back. A refund whose payment was skipped has paid nothing."""
    facts = db.fetch(_FACTS, {"refunds": [run.key for run in runs], "step": REFUND})
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
            for key, order, number, amount, currency, refunded, charge in facts
        ],
    )
