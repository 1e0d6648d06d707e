"""Set how many pieces of a product can be sold."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

from django.core.management.base import CommandError, CommandParser

from orders.models import Product
from supervision.management.base import Command as Base
from supervision.management.base import at_least


class Command(Base):
    """Sets `available`, like the form in the admin."""

    help = (
        "Set the quantity of a product that can still be sold; pieces already reserved for orders are not in it. The "
        "same as editing `available` in the admin or in the table."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("sku", metavar="SKU")
        parser.add_argument("quantity", type=at_least(0), metavar="N")

    def handle(self, *args: Any, **options: Any) -> None:
        sku, quantity = options["sku"], options["quantity"]
        if quantity > 2**31 - 1:
            raise CommandError(f"{quantity} is more than the table can hold")
        if not Product.objects.filter(sku=sku).update(available=quantity):
            close = get_close_matches(sku, Product.objects.values_list("sku", flat=True), n=1, cutoff=0.4)
            hint = f", did you mean {close[0]}?" if close else ": make it in the admin, or run seed_catalogue"
            raise CommandError(f"no product {sku!r}{hint}")
        self.stdout.write(f"{sku}: {quantity} available")
