"""The catalogue, which needs no account."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.utils.translation import gettext as _
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.exceptions import ValidationError
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response

from orders import queries
from orders.api.base import Door
from orders.api.serializers import ProductPage
from orders.models import Category, Product
from orders.shelves.search import LONGEST, matching
from orders.templatetags.shop import picture
from supervision.api.requests import PAGING, page_of, refuse_unknown

FILTERS = [
    OpenApiParameter("search", OpenApiTypes.STR, description="the beginnings of words of name, SKU or description; all have to be there"),
    OpenApiParameter("category", OpenApiTypes.STR, description="the address of a category, such as `kitchen`"),
]


class ProductsView(Door):
    """The catalogue."""

    permission_classes = [AllowAny]  # nosemgrep: door-for-all

    @extend_schema(operation_id="list_products", parameters=[*FILTERS, *PAGING], responses=ProductPage)
    def get(self, request: Request) -> Response:
        """The products on sale by name, each with the quantity available."""
        refuse_unknown(request, ["search", "category", "cursor", "page_size"])
        rows, links = page_of(_found(request), request, field="name", descending=False)
        return Response({"results": [_product(product, request) for product in rows], **links})


def _found(request: Request) -> QuerySet[Product]:
    """The products on sale that fit the filters."""
    rows = queries.products().select_related("category")
    query = request.query_params
    if "category" in query:
        category = Category.objects.filter(slug=query["category"][:LONGEST].replace("\x00", "")).first()
        if category is None:
            raise ValidationError({"category": [_("There is no such category.")]})
        rows = rows.filter(category=category)
    if "search" in query:
        if len(query["search"]) > LONGEST:
            raise ValidationError({"search": [_("Expected at most %(most)d characters.") % {"most": LONGEST}]})
        rows = matching(rows, query["search"])
    return rows


def _product(product: Product, request: Request) -> dict[str, Any]:
    return {
        "sku": product.sku,
        "name": product.name,
        "price": str(product.price),
        "currency": product.currency,
        "available": product.available,
        "category": product.category.slug if product.category else None,
        "image": request.build_absolute_uri(picture(product)),
    }
