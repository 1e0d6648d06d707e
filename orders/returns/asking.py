"""Asking for a return. It is accepted when its rows and its submission are committed, in one transaction.

The guarded statement `_HOLD` counts the pieces of a return at the order's delivered products. It wins only where enough pieces are
left, so returns that are asked for at the same moment never exceed together what was delivered. The statement before it makes
the order's rows, or locks them in the order of the SKUs: two returns wait for each other, and never deadlock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from django.utils.translation import gettext as _

from orders.later_requests import Asked, check_key, digest_of, seen, submission
from orders.models import Return, ReturnLine
from orders.parcels.states import RETURNED
from orders.payments.state import charge_of
from orders.queries import OrderView
from orders.returns import codes
from orders.returns.prices import Prices, chosen, named_in, prices_of
from orders.services import Conflict, InvalidOrder
from orders.validation import merged
from supervision.intake.submission import accept
from supervision.operations.audit_log import name_of
from supervision.postgres import db
from supervision.states import RunState

_OPEN = """
INSERT INTO orders_returnable AS r (order_key, sku, delivered)
SELECT %(order)s, sku, delivered FROM unnest(%(skus)s::text[], %(delivered)s::int[]) v(sku, delivered) ORDER BY sku
ON CONFLICT (order_key, sku) DO UPDATE SET delivered = r.delivered
RETURNING r.sku, r.delivered, r.returned
"""
# The order leaves for the archive before this or after it, with the return (`orders.records.leaving`).
_STAYS = "SELECT true FROM orders_order WHERE public_id = %(order)s FOR KEY SHARE"
_HOLD = """
UPDATE orders_returnable r SET returned = r.returned + v.pieces
  FROM unnest(%(skus)s::text[], %(pieces)s::int[]) v(sku, pieces)
 WHERE r.order_key = %(order)s AND r.sku = v.sku AND r.returned + v.pieces <= r.delivered
RETURNING r.sku
"""


class _Replayed(Exception):
    """The transaction found that another request with this key came first."""


def ask(
    view: OrderView,
    lines: Sequence[Mapping[str, Any]],
    reason: str,
    *,
    by: Any,
    by_operator: bool = False,
    idempotency_key: str | None = None,
) -> Asked:
    """Accept a return of these pieces of an order: {"sku", "quantity"}, and "unit_price" where it is named (`orders.returns.prices`).

    by_operator: also of parcels that the carrier brought back.
    Raises InvalidOrder, with messages at the wrong lines; Conflict, if the order was not delivered, is archived, or not so many pieces are
    left to return (`errors` says how many); KeyReused. Then nothing was written.
    """
    if idempotency_key is not None:
        check_key(idempotency_key)
    wanted, first = merged(lines)
    prices, names = prices_of(view), {line.sku: line.name for line in view.lines}
    named = named_in(lines, prices)
    at_prices = sorted((sku, str(price), one.pieces) for (sku, price), one in named.items())
    digest = digest_of(sorted(wanted.items()), reason, *([at_prices] if at_prices else []))
    client = f"return:{view.public_id}"
    if idempotency_key is not None and (before := seen(client, idempotency_key, digest)):
        return before
    delivered = _delivered(prices)
    wrong = {first[sku]: {"sku": [_("This order has no %(sku)s.") % {"sku": sku}]} for sku in wanted if sku not in delivered}
    if wrong:
        raise InvalidOrder({"lines": wrong})
    if view.archived is not None:
        raise _archived()
    if not may_return(view, by_operator=by_operator):
        message = _("This order was not delivered: nothing of it can be returned.")
        raise Conflict(codes.NOT_DELIVERED, message, {"lines": [message]})

    def work() -> str:
        if not db.fetch(_STAYS, {"order": view.public_id}):
            raise _archived()
        rows = {"order": view.public_id, "skus": list(delivered), "delivered": list(delivered.values())}
        state = {sku: (most, held) for sku, most, held in db.fetch(_OPEN, rows)}
        if idempotency_key is not None and seen(client, idempotency_key, digest):
            raise _Replayed
        facts: list[dict[str, Any]] = [
            {"sku": sku, "name": names[sku], "quantity": pieces, "unit_price": str(price)}
            for sku, price, pieces in chosen(view.public_id, wanted, prices, named)
        ]
        new = submission(codes.WORKFLOW, _payload(view, facts, reason), client=client, key=idempotency_key, digest=digest)
        accept([new])
        won = db.fetch(_HOLD, {"order": view.public_id, "skus": list(wanted), "pieces": list(wanted.values())})
        if len(won) < len(wanted):
            raise _beyond({sku: state[sku][0] - state[sku][1] for sku in wanted}, wanted, first)
        number = f"{view.number}-R{Return.objects.filter(order_key=view.public_id).count() + 1}"
        of = Return.objects.create(
            public_id=new.public_id,
            order_key=view.public_id,
            number=number,
            reason=reason,
            asked_by=name_of(by),
            currency=view.currency,
        )
        ReturnLine.objects.bulk_create(
            ReturnLine(
                of=of,
                sku=line["sku"],
                name=line["name"],
                quantity=line["quantity"],
                unit_price=Decimal(line["unit_price"]),
                holds=line["quantity"],
            )
            for line in facts
        )
        return new.public_id

    try:
        return Asked(db.transact(work))
    except _Replayed:
        if known := seen(client, str(idempotency_key), digest):
            return known
        raise


def may_return(view: OrderView, *, by_operator: bool = False) -> bool:
    """Whether the order was delivered, as far as the shop knows: it is Processed, and not all of its parcels came back.

    Nothing is taken back of an order whose rows are in the archive.
    """
    if view.archived is not None:
        return False
    came_back = bool(view.parcels) and all(parcel.state == RETURNED for parcel in view.parcels)
    return view.process_state == RunState.PROCESSED and (by_operator or not came_back)


def left(view: OrderView) -> dict[str, int]:
    """The pieces of each product of this order that can still be returned; none of an order that was not delivered. One query."""
    if not may_return(view):
        return {}
    held = dict(db.run("SELECT sku, returned FROM orders_returnable WHERE order_key = %(order)s", {"order": view.public_id}))
    return {sku: pieces - held.get(sku, 0) for sku, pieces in _delivered(prices_of(view)).items()}


def _delivered(prices: Prices) -> dict[str, int]:
    """The pieces of each product of a Processed order, by SKU in order."""
    return {sku: sum(prices[sku].values()) for sku in sorted(prices)}


def _archived() -> Conflict:
    message = _("The order ended long ago and is archived: nothing about it can be changed.")
    return Conflict("archived", message, {"lines": [message]})


def _beyond(rest: Mapping[str, int], wanted: Mapping[str, int], first: Mapping[str, int]) -> Conflict:
    errors = {
        first[sku]: {"quantity": [_("Only %(count)d of %(sku)s can be returned.") % {"count": count, "sku": sku}]}
        for sku, count in rest.items()
        if wanted[sku] > count
    }
    return Conflict(codes.BEYOND, _("More than was delivered and is not yet returned."), {"lines": errors})


def _payload(view: OrderView, lines: list[dict[str, Any]], reason: str) -> dict[str, Any]:
    return {
        "order": view.public_id,
        "number": view.number,
        "email": view.email,
        "language": view.language,
        "currency": view.currency,
        "total": str(view.total),
        "lines": lines,
        "reason": reason,
        "intent": charge_of(view.steps),
    }
