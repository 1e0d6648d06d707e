"""Prepares a web process for its first requests, so that customers do not wait for it in a rolling restart.

The pages are imported, the addresses of each language are put into Django's tables, and an order is read and thrown away, which
loads the rules of its country and compiles the patterns of its fields. Nothing here asks the database, and a shop that would
refuse that order (it delivers to other countries) starts all the same.
"""

from __future__ import annotations

from contextlib import suppress

from django.conf import settings
from django.template.loader import get_template
from django.urls import reverse
from django.utils.translation import override
from rest_framework.exceptions import ValidationError

from orders.countries import country_choices
from orders.validation import read_order

ORDER = {
    "email": "ada@example.com",
    "shipping_address": {"name": "Ada", "line1": "Via Roma 1", "city": "Torino", "postal_code": "10121", "country": "IT"},
    "lines": [{"sku": "MUG", "quantity": 1}],
    "payment_method": "pm_card_visa",
}
TEMPLATES = (
    "base.html",
    "orders/catalogue.html",
    "orders/product.html",
    "orders/cart.html",
    "orders/checkout.html",
    "orders/order.html",
    "admin/login.html",
)


def warm() -> None:
    """Do once what the first requests would do."""
    for language, _name in settings.LANGUAGES:
        with override(language):
            for page in ("orders:catalogue", "api:orders", "admin:index"):
                reverse(page)
            country_choices()
    with suppress(ValidationError):
        read_order(ORDER)
    for name in TEMPLATES:
        get_template(name)
