"""Takes pieces out of stock, all of an order's or none, and puts them back.

Used by the `reserve-stock` step, and by two steps of returns (`stock_returns`). Its only resource is this database:
the engine runs a whole cohort inside the transaction that records the outcome, so the effect happens exactly once.
Reserving and releasing both lock the products in the order of their SKUs: two cohorts wait for each other, but they
never deadlock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from django.db import connection
from django.utils.translation import gettext as _

from orders.agents import stock_returns
from orders.models import Product, StockReservation
from orders.parcels.splitting import BOOKING
from orders.returns import codes
from supervision import Agent, PermanentFailure, StepRequest
from supervision.errors import AgentFailure

_TAKE = """
UPDATE orders_product AS product SET available = product.available + taken.change
  FROM unnest(%s::text[], %s::int[]) AS taken (sku, change)
 WHERE product.sku = taken.sku
"""
_RESERVE = """
INSERT INTO orders_stockreservation (idempotency_key, order_key, sku, quantity)
SELECT * FROM unnest(%s::text[], %s::text[], %s::text[], %s::int[])
"""
_RELEASE = """
UPDATE orders_stockreservation SET released_at = now()
 WHERE order_key = ANY(%s) AND released_at IS NULL
RETURNING order_key, sku, quantity
"""


class StockAgent(Agent):
    """Reserves and releases the shop's own products."""

    name = "stock"
    transactional = True
    signals = (codes.RECEIVED,)

    def perform_many(self, requests: Sequence[StepRequest]) -> list[Mapping[str, Any] | AgentFailure]:
        """Reserve each order's lines, first come first served; `{"reserved": {sku: quantity}}` each.

        The steps of returns are `stock_returns`'s.
        """
        if requests[0].step in stock_returns.PERFORM:
            return stock_returns.PERFORM[requests[0].step](requests)
        wanted = [_wanted(request) for request in requests]
        stock = _lock({sku for lines in wanted for sku in lines})
        # Read after the lock: the transaction that held it may have reserved under one of our keys.
        reserved = _reserved([request.idempotency_key for request in requests])
        taken: Counter[str] = Counter()
        rows: list[tuple[str, str, str, int]] = []
        answers: list[Mapping[str, Any] | AgentFailure] = []
        for request, lines in zip(requests, wanted, strict=True):
            key = request.idempotency_key
            if key not in reserved:
                short = [sku for sku in sorted(lines) if stock.get(sku, 0) - taken[sku] < lines[sku]]
                if short:
                    answers.append(_out_of_stock(short[0], lines[short[0]], stock.get(short[0], 0) - taken[short[0]]))
                    continue
                taken.update(lines)
                rows.extend((key, request.run_key, sku, quantity) for sku, quantity in lines.items())
                reserved[key] = lines
            answers.append({"reserved": dict(reserved[key])} if reserved[key] else _released())
        _change({sku: -quantity for sku, quantity in taken.items()})
        if rows:
            with connection.cursor() as cursor:
                cursor.execute(_RESERVE, [list(column) for column in zip(*rows, strict=True)])
        return answers

    def compensate_many(self, requests: Sequence[StepRequest]) -> list[Mapping[str, Any] | AgentFailure]:
        """Put back everything that each order still holds, from any attempt; `{"released": {sku: quantity}}` each."""
        if requests[0].step in stock_returns.UNDO:
            return stock_returns.UNDO[requests[0].step](requests)
        orders = [request.run_key for request in requests]
        held = StockReservation.objects.filter(order_key__in=orders, released_at=None)
        _lock(set(held.values_list("sku", flat=True)))
        released: dict[str, Counter[str]] = {order: Counter() for order in orders}
        with connection.cursor() as cursor:
            cursor.execute(_RELEASE, [orders])
            for order, sku, quantity in cursor.fetchall():
                released[order][sku] += quantity
        _change(dict(sum(released.values(), Counter())))
        return [{"released": dict(released[order])} for order in orders]

    def stays(self, step: str, done: Collection[str]) -> bool:
        """The pieces of an order go back on the shelf, unless its parcel is booked or may be. Returned goods stay where they are."""
        return step in stock_returns.PERFORM or BOOKING in done


def _wanted(request: StepRequest) -> Counter[str]:
    lines: Counter[str] = Counter()
    for line in request.payload["lines"]:
        lines[line["sku"]] += int(line["quantity"])
    return lines


def _lock(skus: set[str]) -> dict[str, int]:
    """Lock these products until the transaction ends; return the available quantity of each."""
    products = Product.objects.select_for_update(no_key=True).filter(sku__in=skus).order_by("sku")
    return dict(products.values_list("sku", "available")) if skus else {}


def _reserved(keys: Sequence[str]) -> dict[str, Counter[str]]:
    """What is reserved under these keys; an empty counter if the reservation was released."""
    found: dict[str, Counter[str]] = {}
    rows = StockReservation.objects.filter(idempotency_key__in=keys)
    for key, sku, quantity, released_at in rows.values_list("idempotency_key", "sku", "quantity", "released_at"):
        lines = found.setdefault(key, Counter())
        if released_at is None:
            lines[sku] = quantity
    return found


def _change(changes: Mapping[str, int]) -> None:
    if changes:
        with connection.cursor() as cursor:
            cursor.execute(_TAKE, [list(changes), list(changes.values())])


def _out_of_stock(sku: str, wanted: int, available: int) -> PermanentFailure:
    return PermanentFailure(
        _("Out of stock: %(wanted)d of %(sku)s wanted, %(available)d available.") % {"sku": sku, "wanted": wanted, "available": available},
        code="out_of_stock",
        for_customer=True,
        public_message=_("Something in your order is sold out."),
    )


def _released() -> PermanentFailure:
    return PermanentFailure(_("The reservation was given back: nothing can be reserved under its key."), code="released")
