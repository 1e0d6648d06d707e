"""The catalogue, which needs no account."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response

from orders import queries
from orders.api.base import Door
from orders.api.serializers import ProductPage
from orders.models import Product
from orders.templatetags.shop import picture
from supervision.api.requests import PAGING, page_of, refuse_unknown


class ProductsView(Door):
    """The catalogue."""

    permission_classes = [AllowAny]

    @extend_schema(operation_id="list_products", parameters=PAGING, responses=ProductPage)
    def get(self, request: Request) -> Response:
        """The products on sale, each with the quantity available."""
        refuse_unknown(request, ["cursor", "page_size"])
        rows, links = page_of(queries.products(), request, field="name", descending=False)
        return Response({"results": [_product(product, request) for product in rows], **links})


def _product(product: Product, request: Request) -> dict[str, Any]:
    return {
        "sku": product.sku,
        "name": product.name,
        "price": str(product.price),
        "currency": product.currency,
        "available": product.available,
        "image": request.build_absolute_uri(picture(product)),
    }
