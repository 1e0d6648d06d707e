"""The worth of orders, for the engine's incidents: the engine itself has no notion of money."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal

from orders.agents import payment_transfer
from supervision.incidents import kept_evidence, lifecycle
from supervision.postgres import db

_WORTH = "SELECT currency, sum(total) FROM orders_order WHERE run_id = ANY (%(runs)s) GROUP BY currency"


@lifecycle.money
def worth(run_ids: Sequence[int]) -> Mapping[str, Decimal]:
    """The totals of the orders behind these runs, by currency."""
    return dict(db.run(_WORTH, {"runs": list(run_ids)}))


@kept_evidence.says
def transferred(order: str) -> str:
    """The bank transfers that have come for this order and that no step has taken: 25.80 EUR, 4.20 EUR."""
    return ", ".join(f"{amount} {currency}" for amount, currency in payment_transfer.not_taken(order).values())
