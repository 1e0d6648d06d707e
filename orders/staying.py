"""What stays in place of an order that an operator cancels without undo: its charge, its parcels, its pieces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django.db.models import Sum
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from orders.models import Order, StockReservation
from orders.parcels.splitting import BOOKING
from orders.payments import codes, state
from supervision.models import Run, StepState
from supervision.operations import previews
from supervision.postgres import db
from supervision.states import Direction, Effect

PAYMENT, SHIPMENT = "payment", "shipment"
LEFT = "left"  # in the result of an undo step: the effect stays, because the order was cancelled without undo
_LEFT = """
SELECT s.run_id, array_agg(DISTINCT CASE WHEN s.name = %(booking)s THEN 'shipment' ELSE 'payment' END)
  FROM supervision_stepstate s
 WHERE s.run_id = ANY (%(runs)s::bigint[]) AND s.direction = 'undo' AND s.result @> '{"left": true}'
   AND (s.name = %(booking)s OR s.name = ANY (%(paying)s::text[]))
 GROUP BY s.run_id
"""


def left_of(run_ids: Sequence[int]) -> dict[int, list[str]]:
    """Which of PAYMENT and SHIPMENT were left in place, by run; only runs that were cancelled without undo are in it."""
    return dict(db.run(_LEFT, {"runs": list(run_ids), "booking": BOOKING, "paying": list(codes.STEPS)}))


def is_left(step: Any) -> bool:
    """Whether this undo step was left out, because the order was cancelled without undo."""
    return step.direction == Direction.UNDO and bool((step.result or {}).get(LEFT))


def in_words(order: Order, run: Run, steps: Sequence[StepState]) -> str:
    """What would stay if the order were cancelled without undo now, one sentence each; empty where nothing would."""
    undos = [step for step in previews.plan(run.key, "abandon").steps if step.direction == Direction.UNDO]
    left = {step.name for step in undos if step.action == "leave"}
    known = {step.name: step for step in steps if step.direction == Direction.DO}
    return " ".join(_sentences(order, left, known))


def _sentences(order: Order, left: set[str], known: dict[str, StepState]) -> Iterator[str]:
    total = {"total": f"{order.total} {order.currency}"}
    effects = {name: step.effect for name, step in known.items()}
    transferred = codes.AUTHORISE in known and state.holds_transfer(known[codes.AUTHORISE])
    taking = (*codes.TAKES_MONEY, codes.AUTHORISE) if transferred else codes.TAKES_MONEY
    taken = [effects.get(name) for name in taking if name in left]
    if Effect.DONE in taken:
        yield _("%(total)s stay charged: the customer does not get the money back.") % total
    elif taken:
        yield _("It is not known whether %(total)s are charged: if they are, the customer does not get them back.") % total
    elif codes.AUTHORISE in left:
        yield _("%(total)s may stay reserved on the customer's card.") % total
    if BOOKING in left:
        booked = effects.get(BOOKING) == Effect.DONE
        yield _("The shipment stays booked.") if booked else _("It is not known whether a shipment is booked: if it is, it stays booked.")
    held = StockReservation.objects.filter(order_key=order.public_id, released_at=None).aggregate(n=Sum("quantity"))["n"] or 0
    if held and left & {"reserve-stock"}:
        yield ngettext("%(n)d piece stays booked out of stock.", "%(n)d pieces stay booked out of stock.", held) % {"n": held}
    elif held:
        yield ngettext("%(n)d piece goes back on the shelf.", "%(n)d pieces go back on the shelf.", held) % {"n": held}
