"""What operators have given back by hand of a charge by card: in cash, or with a transfer at the bank.

The payment service does not know of it, and still lets the whole charge go back. So it is a row beside the refunds of the order, as a
payout is (`orders.payments.transfers`). The shop subtracts it, and the agent does before each call (`orders.agents.payment_part`).

What the service has paid itself has its own rows: refunds that the result names (`refunds`), and those of the step in the ledger. Only
what is more than they are was given by hand. A result that names a refund of which the shop has not heard yet tells nothing of that.

A refund that pays a failed one again writes no row: the open finding of that one counts until an operator settles it.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from orders.models import PaymentAdjustment
from orders.payments.codes import BY_HAND
from orders.returns.codes import REFUND
from supervision.postgres import db

NOTHING = Decimal("0.00")
# The refunds of the payment service that this result may count, with their amounts. One that has failed since gives nothing back.
_AT_SERVICE = """
SELECT external_id, CASE WHEN gives_back THEN amount ELSE 0 END FROM orders_paymentadjustment
 WHERE external_id = ANY (%(named)s::text[]) AND intent = %(intent)s
UNION ALL
SELECT e.external_id, coalesce(max(e.amount), 0)
  FROM supervision_effect e JOIN supervision_run r ON r.id = e.run_id
 WHERE r.key = %(key)s AND e.direction = 'do' AND e.operation = %(step)s AND e.outcome = 'done' AND e.external_id <> ''
   AND NOT EXISTS (SELECT FROM orders_paymentadjustment a WHERE a.external_id = e.external_id
                      AND (NOT a.gives_back OR a.external_id = ANY (%(named)s::text[])))
 GROUP BY e.external_id
"""
_GIVEN = """
SELECT coalesce(sum(amount), 0) FROM orders_paymentadjustment
 WHERE order_key = %(order)s AND intent = %(intent)s AND gives_back AND starts_with(external_id, %(by_hand)s)
"""
# A step that died after its call could not tell what it has paid: the ledger does, once the undo has looked. Without what was undone.
_UNSAID = """
SELECT coalesce(sum(amount), 0) FROM (
     SELECT e.amount FROM supervision_effect e JOIN supervision_run r ON r.id = e.run_id
      WHERE r.key = %(key)s AND r.process_state = 'Cancelled'
        AND e.direction = 'do' AND e.operation = %(step)s AND e.service = 'payment' AND e.outcome = 'done'
     UNION ALL
     SELECT (e->>'amount')::numeric FROM supervision_archivedrun a, jsonb_array_elements(nullif(a.body->'effects', 'null')) e
      WHERE a.key = %(key)s AND a.process_state = 'Cancelled'
        AND e->>'direction' = 'do' AND e->>'operation' = %(step)s AND e->>'service' = 'payment' AND e->>'outcome' = 'done') paid
"""


def record(key: str, payload: Mapping[str, Any], refunded: Decimal, result: Mapping[str, Any]) -> None:
    """Write what this result by hand of a return or refund has given back by hand, once. The caller has locked the order."""
    if payload.get("replaces"):
        return
    amount = refunded - _at_service(key, str(payload["intent"]), result)
    if amount > 0:
        facts = {"kind": "refund", "intent": payload["intent"], "order_key": payload["order"], "amount": amount}
        state = {"currency": str(payload["currency"]).upper(), "status": "succeeded", "gives_back": True, "rank": 1}
        PaymentAdjustment.objects.get_or_create(external_id=f"{BY_HAND}{key}", defaults={**facts, **state})


def _at_service(key: str, intent: str, result: Mapping[str, Any]) -> Decimal:
    """What the payment service has paid of this result; without an end where the result names a refund that is not known here."""
    said = result.get("refunds")
    named = {one for one in said if isinstance(one, str) and one.startswith("re_")} if isinstance(said, list) else set()
    found = dict(db.fetch(_AT_SERVICE, {"key": key, "intent": intent, "step": REFUND, "named": sorted(named)}))
    return Decimal("Infinity") if named - found.keys() else sum(found.values(), NOTHING)


def given(order: str, intent: str) -> Decimal:
    """What was given back by hand of this charge."""
    amount: Decimal = db.run(_GIVEN, {"order": order, "intent": intent, "by_hand": BY_HAND})[0][0]
    return round(amount, 2)


def unsaid(key: str) -> Decimal:
    """What the payment service has paid for a cancelled return or refund whose step could not tell, by the ledger."""
    amount: Decimal = db.run(_UNSAID, {"key": key, "step": REFUND})[0][0]
    return round(amount, 2)
