"""Paying an order again after a refusal."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request
from rest_framework.response import Response

from orders import queries
from orders.api.base import Door
from orders.api.serializers import OrderAnswer
from orders.api.views import accepted
from orders.payments.again import pay_again
from orders.services import acting_on
from orders.validation import PaySerializer
from supervision.api.base import account_of
from supervision.api.permissions import operates
from supervision.api.requests import demand_match


class PaymentView(Door):
    """The payment of one order."""

    matches = True

    @extend_schema(operation_id="pay_order_again", request=PaySerializer, responses={202: OrderAnswer})
    def post(self, request: Request, public_id: str) -> Response:
        """Pay in another way: 202 where the payment was refused, and only the payment runs again. 409: it was not refused, or too often."""
        order = self.visible_order(request, public_id)
        if order.account_id != request.user.pk and not operates(request.user):
            raise PermissionDenied
        demand_match(queries.answer(order), request)
        pay_again(order, self.read(request, PaySerializer)["payment_method"], by=acting_on(order.account_id, account_of(request)))
        return accepted(queries.answer(self.visible_order(request, public_id)))
