"""Which prices returned pieces have, where an order has several prices for one product.

The rule, for each piece: the cheapest pieces that the customer still has come first, then those at the next price. A request that names
the price of a line gets pieces at that price. One return may have a product at several prices, with a line for each. So all returns
of an order together are worth at most what its lines say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

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


class Named(NamedTuple):
    """Pieces for which a request names the price. line: the place of the first of its lines that does."""

    pieces: int
    line: int


def prices_of(view: OrderView) -> Prices:
    """The prices of the order's products."""
    found: dict[str, Counter[Decimal]] = {}
    for line in view.lines:
        found.setdefault(line.sku, Counter())[line.unit_price] += line.quantity
    return {sku: dict(sorted(at.items())) for sku, at in found.items()}


def named_in(lines: Sequence[Mapping[str, Any]], prices: Prices) -> dict[tuple[str, Decimal], Named]:
    """The pieces for which a request names the price. Raises InvalidOrder at a line whose price the order does not have."""
    named: dict[tuple[str, Decimal], Named] = {}
    for index, line in enumerate(lines):
        sku, price = line["sku"], line.get("unit_price")
        if price is None:
            continue
        if price not in prices.get(sku, {}):
            text = _("This order has no %(sku)s at this price.") % {"sku": sku}
            raise InvalidOrder({"lines": {index: {"unit_price": [text]}}})
        before = named.get((sku, price), Named(0, index))
        named[sku, price] = before._replace(pieces=before.pieces + line["quantity"])
    return named


def chosen(
    order: str, wanted: Mapping[str, int], prices: Prices, named: Mapping[tuple[str, Decimal], Named]
) -> list[tuple[str, Decimal, int]]:
    """The pieces of each wanted product at each of its prices. Raises Conflict where too few are left at a price that is named.

    Pieces that are not left at any price get the highest one: the caller's guarded statement refuses them.
    """
    several = [sku for sku in wanted if len(prices[sku]) > 1]
    held: dict[tuple[str, Decimal], int] = {}
    if several:
        held = {(sku, price): pieces for sku, price, pieces in db.fetch(_HELD, {"order": order, "skus": several})}
    found = []
    for sku, pieces in wanted.items():
        at = Counter({price: named[sku, price].pieces for price in prices[sku] if (sku, price) in named})
        rest = {price: max(0, most - held.get((sku, price), 0)) for price, most in prices[sku].items()}
        for price, asked in at.items():
            if sku in several and asked > rest[price]:
                words = {"count": rest[price], "sku": sku, "price": price}
                text = _("Only %(count)d of %(sku)s at %(price)s can be returned.") % words
                raise Conflict(codes.BEYOND, text, {"lines": {named[sku, price].line: {"quantity": [text]}}})
        missing = pieces - at.total()
        for price in prices[sku]:
            taken = min(missing, rest[price] - at[price]) if price != max(prices[sku]) else missing
            at[price] += taken
            missing -= taken
        found += [(sku, price, count) for price, count in sorted(at.items()) if count]
    return found
