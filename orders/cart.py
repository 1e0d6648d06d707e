"""The visitor's cart: SKUs and quantities in the session. Prices are looked up each time, never kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from django.contrib.sessions.backends.base import SessionBase
from django.utils.translation import gettext as _

from orders import queries
from orders.models import Product
from orders.validation import MAX_LINES, MAX_QUANTITY

_KEY = "cart"


@dataclass(frozen=True, kw_only=True)
class CartLine:
    """One product in the cart, as the catalogue has it now."""

    product: Product
    quantity: int

    @property
    def amount(self) -> Decimal:
        """What this line costs now."""
        return self.product.price * self.quantity

    @property
    def short(self) -> bool:
        """Whether the customer wants more pieces than are available."""
        return self.quantity > self.product.available


@dataclass(frozen=True, kw_only=True)
class Contents:
    """The cart with the catalogue's present prices and stock. `gone`: SKUs in the cart that are no longer sold."""

    lines: list[CartLine] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)

    @property
    def total(self) -> Decimal:
        """The cart's total at the present prices."""
        return sum((line.amount for line in self.lines), Decimal(0))

    @property
    def currency(self) -> str:
        """The currency of the total."""
        return self.lines[0].product.currency if self.lines else "EUR"

    @property
    def mixed(self) -> str:
        """Why these lines cannot be one order, because they have several currencies; empty if they can."""
        one, *others = dict.fromkeys(line.product.currency for line in self.lines) or [""]
        return _("One order cannot mix %(one)s and %(other)s.") % {"one": one, "other": others[0]} if others else ""

    @property
    def short(self) -> list[CartLine]:
        """The lines with more pieces than are available."""
        return [line for line in self.lines if line.short]

    @property
    def seen(self) -> str:
        """The prices and quantities that the page shows: compared with the present ones when the customer sends the form."""
        return " ".join(f"{line.product.sku}:{line.quantity}:{line.product.price}" for line in self.lines)

    @property
    def expected(self) -> str:
        """The total that the page shows, as an order request names it."""
        return f"{self.total} {self.currency}"


class Cart:
    """A visitor's cart. Entries of the session whose quantity is not a positive integer are ignored."""

    def __init__(self, session: SessionBase) -> None:
        self._session = session
        kept = session.get(_KEY)
        self._wanted: dict[str, int] = {}
        if isinstance(kept, Mapping):
            self._wanted = {str(sku): quantity for sku, quantity in kept.items() if type(quantity) is int and quantity > 0}

    @property
    def pieces(self) -> int:
        """How many pieces are in it."""
        return sum(self._wanted.values())

    def quantity(self, sku: str) -> int:
        """How many of one product are in it."""
        return self._wanted.get(sku, 0)

    def add(self, product: Product, quantity: int = 1) -> int:
        """Put more of a product in; returns how many were added, which the stock may limit."""
        before = self.quantity(product.sku)
        self.change(product, before + quantity)
        return max(0, self.quantity(product.sku) - before)

    def change(self, product: Product, quantity: int) -> None:
        """Set the quantity of a product; 0 takes it out. The stock and the limits of one order bound it."""
        most = min(product.available, MAX_QUANTITY)
        if product.sku not in self._wanted and len(self._wanted) >= MAX_LINES:
            most = 0
        self._put(product.sku, min(quantity, most))

    def remove(self, sku: str) -> None:
        """Take a product out."""
        self._put(sku, 0)

    def clear(self) -> None:
        """Empty the cart."""
        self._session.pop(_KEY, None)
        self._wanted = {}

    def contents(self) -> Contents:
        """The cart's lines, in the sequence in which they were added."""
        if not self._wanted:
            return Contents()
        products = queries.products().in_bulk(list(self._wanted), field_name="sku")
        return Contents(
            lines=[CartLine(product=products[sku], quantity=quantity) for sku, quantity in self._wanted.items() if sku in products],
            gone=[sku for sku in self._wanted if sku not in products],
        )

    def _put(self, sku: str, quantity: int) -> None:
        if quantity > 0:
            self._wanted[sku] = quantity
        else:
            self._wanted.pop(sku, None)
        self._session[_KEY] = dict(self._wanted)


def changes(seen: str, now: Contents) -> list[tuple[CartLine, Decimal]]:
    """The lines whose price has changed since the customer saw it (`Contents.seen`), each with the old price.

    `seen` comes from the browser. It is shown only to the customer who sent it, and parts that cannot be read are ignored.
    """
    before: dict[str, Decimal] = {}
    for part in seen.split()[:MAX_LINES]:
        sku, _, rest = part.partition(":")
        price = rest.partition(":")[2]
        if price.replace(".", "", 1).isascii() and price.replace(".", "", 1).isdigit() and len(price) < 14:
            before[sku] = Decimal(price)
    return [
        (line, before[line.product.sku])
        for line in now.lines
        if line.product.sku in before and before[line.product.sku] != line.product.price
    ]
