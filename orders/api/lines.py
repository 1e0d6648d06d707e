"""The lines of an order that an operator changes: the same checks, right and approval as on the console's page."""

from __future__ import annotations

from django.utils.translation import gettext_lazy
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from orders.edits import changing, codes
from orders.validation import MAX_LINES, MAX_QUANTITY
from supervision.api.base import account_of
from supervision.api.operator_views import VerbDoor
from supervision.api.shapes import ActSerializer, Strict, Text


class FewerSerializer(Strict):
    """How many pieces of one product stay."""

    sku = Text(max_length=64)
    quantity = serializers.IntegerField(min_value=0, max_value=MAX_QUANTITY, help_text=gettext_lazy("0 removes the line"))


class LinesSerializer(ActSerializer):
    """The lines that change, the reason, and the version of the order that the operator looked at."""

    lines = FewerSerializer(many=True, min_length=1, max_length=MAX_LINES)  # type: ignore[call-arg]


class LinesView(VerbDoor):
    """The lines of one order."""

    verb = codes.VERB

    asks = LinesSerializer

    @extend_schema(operation_id="change_lines")
    def post(self, request: Request, public_id: str) -> Response:
        """Reduce or remove lines of an order that is not charged yet. Lines that are not named stay as they are.

        Total, stock and payment follow. 409: it is charged or booked, a step is running, or nothing would be left.
        """
        self.order_with_run(public_id)
        changing.change_lines(public_id, by=account_of(request), **self.read(request, self.asks))
        return self.now(public_id)
