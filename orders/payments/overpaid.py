"""The incident about an order for which more has come than its payment takes: operators are told once, with the amount.

A transfer may come beside a card: while its customer confirms it, while an amount is reserved on it, after it was charged. Or a part had
come, and an operator charged the whole total to a card. Or a second transfer comes after the payment. All of it stays with the order.
An order that ends cancelled tells of it by its undo. This is for those that are Processed, which take no transfer any more. A payment
that an operator has completed by hand, without a word of a card, took what has come up to the order's total.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from django.utils.translation import gettext as _

from orders.agents import payment_transfer
from orders.payments import codes
from orders.payments.state import came_by_transfer, charge_of, was_taken
from orders.queries import OrderView
from orders.returns.codes import amount_said
from supervision.incidents import standing
from supervision.incidents.lifecycle import Cause, open_now
from supervision.signals import untaken
from supervision.states import Direction

KIND = standing.until_acknowledged("overpaid")


def tell(views: Sequence[OrderView]) -> None:
    """Tell operators of those of these Processed orders for which too much has come, in the caller's transaction.

    The caller has waited for those who send signals to these orders.
    """
    beside = _beside(views)
    for view in views:
        if over := _over(view, beside[view.public_id]):
            with standing.own_language():
                title = _("More money has come for the order %(number)s (%(order)s) than its payment takes. Pay back: %(amounts)s.") % {
                    "number": view.number,
                    "order": view.public_id,
                    "amounts": ", ".join(f"{amount} {currency}" for currency, amount in sorted(over.items())),
                }
            open_now(Cause(kind=KIND, key=f"{KIND}:{view.public_id}", title=title, resource="payment"))


Transfers = dict[str, list[str]]  # [amount, currency] by reference


def _beside(views: Sequence[OrderView]) -> dict[str, Transfers]:
    """The transfers that the steps of each order have noted, and those that none has taken."""
    paying = [(view, step) for view in views for step in view.steps if step.name in codes.STEPS and step.direction == Direction.DO]
    came = untaken.of([(view.public_id, codes.TRANSFER, step.name) for view, step in paying]) if paying else {}
    found: dict[str, Transfers] = {view.public_id: {} for view in views}
    for view, step in paying:
        noted: dict[str, Any] = (step.checkpoint or {}).get(codes.TRANSFERS) or {}
        told = payment_transfer.readable(came[view.public_id, codes.TRANSFER, step.name])
        found[view.public_id] |= {**told, **noted}
    return found


def _over(view: OrderView, transfers: Transfers) -> dict[str, Decimal]:
    """What has come of each currency beyond what the order's payment has taken."""
    currency = view.currency.upper()
    came: dict[str, Decimal] = {}
    for amount, of in transfers.values():
        came[of] = came.get(of, Decimal(0)) + Decimal(amount)
    if charge_of(view.steps) is None and (was_taken(view.steps) or came_by_transfer(view.steps)):
        said = [amount_said((step.result or {}).get("received")) for step in view.steps if step.name in codes.STEPS]
        came[currency] = max(came.get(currency, Decimal(0)), *said) - view.total
    return {of: amount for of, amount in came.items() if amount > 0}
