"""Which price a returned piece has, where an order has several prices for one product.

One return has one price for each product. The rule: the cheapest pieces that the customer still has come first, unless the request
names the price of its line. A return that needs two prices is refused, and says how many pieces are left at the first one.
So all returns of an order together are worth at most what its lines say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from django.utils.translation import gettext as _

from orders.queries import OrderView
from orders.returns import codes
from orders.services import Conflict, InvalidOrder
from supervision.postgres import db

# What returns hold at each price. The caller has locked the order's rows of `orders_returnable`, so it stays true until its commit.
_HELD = """
SELECT l.sku, l.unit_price, sum(l.holds) FROM orders_returnline l JOIN orders_return t ON t.id = l.of_id
 WHERE t.order_key = %(order)s AND l.sku = ANY (%(skus)s::text[]) GROUP BY l.sku, l.unit_price
"""
Prices = Mapping[str, Mapping[Decimal, int]]  # by SKU: the pieces at each price, the lowest price first


def prices_of(view: OrderView) -> Prices:
    """The prices of the order's products."""
    found: dict[str, Counter[Decimal]] = {}
    for line in view.lines:
        found.setdefault(line.sku, Counter())[line.unit_price] += line.quantity
    return {sku: dict(sorted(at.items())) for sku, at in found.items()}


def named_in(lines: Sequence[Mapping[str, Any]], prices: Prices) -> dict[str, Decimal]:
    """The prices that a request names, by SKU. Raises InvalidOrder at a line whose price the order does not have, or names another one."""
    named: dict[str, Decimal | None] = {}
    for index, line in enumerate(lines):
        sku, price = line["sku"], line.get("unit_price")
        if price is not None and price not in prices.get(sku, {}):
            raise _wrong(index, _("This order has no %(sku)s at this price.") % {"sku": sku})
        if named.setdefault(sku, price) != price:
            raise _wrong(index, _("One return has one price for each product."))
    return {sku: price for sku, price in named.items() if price is not None}


def _wrong(index: int, text: str) -> InvalidOrder:
    return InvalidOrder({"lines": {index: {"unit_price": [text]}}})


def chosen(
    order: str, wanted: Mapping[str, int], prices: Prices, named: Mapping[str, Decimal], first: Mapping[str, int]
) -> dict[str, Decimal]:
    """The price of each wanted product. first: the index of the line that mentions it. Raises Conflict where one price is not enough."""
    several = [sku for sku in wanted if len(prices[sku]) > 1]
    held: dict[str, dict[Decimal, int]] = {}
    if several:
        for sku, price, pieces in db.fetch(_HELD, {"order": order, "skus": several}):
            held.setdefault(sku, {})[price] = pieces
    found = {sku: next(iter(prices[sku])) for sku in wanted}
    for sku in several:
        rest = {price: pieces - held.get(sku, {}).get(price, 0) for price, pieces in prices[sku].items()}
        price = named.get(sku) or next((price for price, pieces in rest.items() if pieces > 0), found[sku])
        if rest[price] < wanted[sku] <= sum(max(0, pieces) for pieces in rest.values()):
            words = {"count": max(0, rest[price]), "sku": sku, "price": price}
            text = _("Only %(count)d of %(sku)s at %(price)s can be returned: ask for those of another price in another return.") % words
            raise Conflict(codes.SEVERAL_PRICES, text, {"lines": {first[sku]: {"quantity": [text]}}})
        found[sku] = price
    return found
