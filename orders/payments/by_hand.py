"""A result by hand of an order's payment: the hook of the workflow `fulfil-order`.

The payment service alone tells for certain which order a payment was made for, and no call is made here: the agent compares it when
the payment is undone, charged or refunded. What the service's webhooks have told is compared at once.
"""

from __future__ import annotations

from django.utils.translation import gettext as _

from orders.payments import codes
from supervision.errors import Refused
from supervision.postgres import db
from supervision.states import Direction
from supervision.workflow import ByHand

_MADE_FOR = """
SELECT order_key FROM orders_paymentevent WHERE intent = %(intent)s AND order_key NOT IN ('', %(order)s)
UNION ALL
SELECT order_key FROM orders_paymentadjustment WHERE intent = %(intent)s AND order_key NOT IN ('', %(order)s)
 LIMIT 1
"""


def completed(done: ByHand) -> None:
    """Raise Refused where an operator names a payment that was made for another order, as far as it was told."""
    intent = done.result.get("intent")
    if done.step not in codes.STEPS or done.direction != Direction.DO or not isinstance(intent, str) or intent == codes.BANK_TRANSFER:
        return
    for (order,) in db.fetch(_MADE_FOR, {"intent": intent, "order": done.key}):
        text = _("The payment %(intent)s was made for another order, %(order)s.") % {"intent": intent, "order": order}
        raise Refused(f"intent: {text}", "invalid_result")
