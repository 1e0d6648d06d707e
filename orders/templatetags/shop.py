"""The storefront's template tags and filters."""

from __future__ import annotations

from django import template
from django.contrib.staticfiles.storage import staticfiles_storage

from orders.cart import Cart
from orders.countries import country_name
from orders.formats import day, moment, money
from orders.models import Product

NO_PICTURE = "orders/products/no-picture.svg"

register = template.Library()
register.filter("money", money)
register.filter("day", day)
register.filter("moment", moment)


@register.filter
def picture(product: Product) -> str:
    """The address of a product's picture; a drawing of a parcel if it has none or the file is missing."""
    try:
        return staticfiles_storage.url(product.picture or NO_PICTURE)
    except ValueError:  # not among the collected files
        return staticfiles_storage.url(NO_PICTURE)


@register.filter
def country(code: str) -> str:
    """A country's name."""
    return country_name(code)


@register.simple_tag(takes_context=True)
def cart_count(context: template.Context) -> int:
    """How many pieces are in this visitor's cart."""
    session = getattr(context.get("request"), "session", None)
    return 0 if session is None else Cart(session).pieces
