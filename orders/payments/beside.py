"""A bank transfer that is here beside an order's card, and that no step has taken: no failed payment is done again by card then.

The customer would pay twice. As a bank transfer the payment takes what has come; a cancelled order's transfer is paid back.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from django.utils.translation import gettext as _

from orders.agents import payment_transfer
from orders.payments import codes
from supervision.errors import Refused
from supervision.postgres import db

TRANSFER_CAME = "transfer_came"
_NOTED = """
SELECT s.checkpoint->%(transfers)s, s.checkpoint->%(lapsed)s IS NOT NULL
  FROM supervision_run r JOIN supervision_stepstate s ON s.run_id = r.id AND s.direction = 'do' AND s.name = %(step)s
 WHERE r.key = %(order)s
"""


def check_resubmission(key: str, payload: Mapping[str, Any], steps: Collection[str]) -> None:
    """Raise Refused where one of these failed steps would charge or reserve a card although a transfer is here."""
    if payload.get("payment_method") == codes.BANK_TRANSFER:
        return
    if any(step in steps and _is_here(key, step) for step in codes.STEPS):
        text = _(
            "A bank transfer has come for this order, and a card would be charged beside it. Resubmit the payment with the payment"
            " method bank_transfer, which takes the transfer, or cancel the order."
        )
        raise Refused(text, TRANSFER_CAME)


def _is_here(key: str, step: str) -> bool:
    """Whether there is a transfer of which this step has noted nothing, and which it would take if the order was paid by transfer.

    The step `capture-payment` takes no transfer: it charges the amount that the card has reserved, until that has lapsed.
    """
    if not (came := payment_transfer.not_taken(key, step)):
        return False
    [(noted, lapsed)] = db.fetch(_NOTED, {"order": key, "step": step, "transfers": codes.TRANSFERS, "lapsed": codes.LAPSED})
    return bool(came.keys() - (noted or {}).keys()) and (lapsed or step != codes.CAPTURE)
