"""The shop's facts for the archive. The engine asks for them in the transaction that moves orders out of the hot tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from supervision.postgres import db

_FACTS = """
SELECT o.run_id, jsonb_build_object(
         'reference', o.number, 'account', o.account_id, 'email', o.email, 'total', o.total::text, 'currency', o.currency,
         'created_at', o.created_at,
         'lines', (SELECT jsonb_agg(jsonb_build_object('sku', l.sku, 'name', l.name, 'quantity', l.quantity,
                                                       'unit_price', l.unit_price::text) ORDER BY l.id)
                     FROM orders_orderline l WHERE l.order_id = o.id))
  FROM orders_order o WHERE o.run_id = ANY (%(runs)s)
"""
# The reservations of ended orders are not needed any more: the pieces were either sold or released.
_FORGET_RESERVATIONS = """
DELETE FROM orders_stockreservation h USING orders_order o WHERE o.run_id = ANY (%(runs)s) AND h.order_key = o.public_id
"""
_TAKE_OUT = """
WITH l AS (DELETE FROM orders_orderline l USING orders_order o WHERE o.run_id = ANY (%(runs)s) AND l.order_id = o.id)
DELETE FROM orders_order WHERE run_id = ANY (%(runs)s)
"""


def archive(run_ids: Sequence[int], *, keep: bool) -> Mapping[int, Mapping[str, Any]]:
    """The orders of these runs as JSON values, by run. With `keep` their order rows stay, otherwise they are deleted."""
    runs = {"runs": list(run_ids)}
    facts = dict(db.fetch(_FACTS, runs))
    db.fetch(_FORGET_RESERVATIONS, runs)
    if not keep:
        db.fetch(_TAKE_OUT, runs)
    return facts
