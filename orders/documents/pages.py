"""The PDF of a document, for the customer of its order and for operators."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from orders.documents import pdf
from orders.documents.issuing import of_order
from orders.responses import private
from orders.views import visible_order


@require_safe
def document(request: HttpRequest, public_id: str, name: str) -> HttpResponse:
    """One document of the order, as PDF. For those who may see the order."""
    view = visible_order(request, public_id)
    found = [] if view is None else [one for one in of_order(public_id) if one.name == name]
    if not found:
        return private(render(request, "orders/order_unknown.html", status=404))
    headers = {"Content-Disposition": f'inline; filename="{name}.pdf"'}
    return private(HttpResponse(pdf.printed(found[0]), content_type="application/pdf", headers=headers))
