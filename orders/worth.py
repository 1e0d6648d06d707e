"""The worth of orders, for the engine's incidents: the engine itself has no notion of money."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal

from supervision.incidents import lifecycle
from supervision.postgres import db

_WORTH = "SELECT currency, sum(total) FROM orders_order WHERE run_id = ANY (%(runs)s) GROUP BY currency"


@lifecycle.money
def worth(run_ids: Sequence[int]) -> Mapping[str, Decimal]:
    """The totals of the orders behind these runs, by currency."""
    return dict(db.run(_WORTH, {"runs": list(run_ids)}))
