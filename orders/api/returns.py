"""Returns: asking for one, looking at it, and the warehouse's report on its goods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import PermissionDenied, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from orders import queries
from orders.api.base import Door
from orders.api.serializers import ProblemAnswer, ReturnAnswer
from orders.returns import answers, codes, goods
from orders.returns.answers import ReturnView
from orders.returns.asking import ask
from orders.validation import MAX_LINES, MAX_QUANTITY, LineSerializer
from supervision.api.base import account_of, replay_mark
from supervision.api.errors import PROBLEM
from supervision.api.permissions import Operators, operates, sees_all
from supervision.api.reference.schema import IDEMPOTENCY_KEY
from supervision.api.shapes import Shape, Strict, Text, Whole, or_pending
from supervision.errors import UnknownRun
from supervision.operations import operator_verbs


class ReturnLineSerializer(LineSerializer):
    """One product and its pieces; where the order has several prices for it, which of them, or else the lowest ones first."""

    unit_price = serializers.DecimalField(max_digits=10, decimal_places=2, required=False, min_value=0)


class ReturnSerializer(Strict):
    """What comes back, and why."""

    lines = ReturnLineSerializer(many=True, min_length=1, max_length=MAX_LINES)  # type: ignore[call-arg]
    reason = Text(max_length=500)


class GoodsLineSerializer(Strict):
    """What came of one product, or of its pieces at one price. The pieces that are neither accepted nor refused did not come."""

    sku = Text(max_length=64)
    unit_price = serializers.DecimalField(
        max_digits=10, decimal_places=2, required=False, min_value=0, help_text="where the return has several: else the cheapest came first"
    )
    accepted = Whole(min_value=0, max_value=MAX_QUANTITY)
    refused = Whole(min_value=0, max_value=MAX_QUANTITY, required=False, default=0)


class GoodsSerializer(Strict):
    """The warehouse's report. Products that it leaves out did not come."""

    lines = GoodsLineSerializer(many=True, max_length=MAX_LINES)  # type: ignore[call-arg]
    reason = Text(max_length=500)


def report_of(said: Mapping[str, Any]) -> dict[str, Any]:
    """The lines of a request as the signal of the warehouse has them."""
    return {"lines": [{name: str(one) if name == "unit_price" else one for name, one in line.items()} for line in said["lines"]]}


class AcceptedReturn(Shape):
    """The id of an accepted return."""

    id = serializers.CharField()


class ReturnsAnswer(Shape):
    """The returns of an order."""

    results = ReturnAnswer(many=True)


class OrderReturnsView(Door):
    """The returns of one order."""

    @extend_schema(operation_id="list_returns", responses=ReturnsAnswer)
    def get(self, request: Request, public_id: str) -> Response:
        """The returns of this order, the oldest first."""
        order = self.visible_order(request, public_id)
        found = answers.of_order(order.public_id, order.archived, inside=sees_all(request.user))
        return Response({"results": [answers.answer(one) for one in found]})

    @extend_schema(
        operation_id="return_goods",
        request=ReturnSerializer,
        parameters=[IDEMPOTENCY_KEY],
        responses={202: OpenApiResponse(AcceptedReturn, description="Accepted."), (422, PROBLEM): ProblemAnswer},
    )
    def post(self, request: Request, public_id: str) -> Response:
        """Ask for a return: 202 once it is committed. 409: the order was not delivered, or not so many pieces are left to return."""
        order = self.visible_order(request, public_id)
        if order.account_id != request.user.pk and not operates(request.user):
            raise PermissionDenied
        asked = self.read(request, ReturnSerializer)
        key = request.headers.get("Idempotency-Key")
        operator = operates(request.user)
        made = ask(order, asked["lines"], asked["reason"], by=account_of(request), by_operator=operator, idempotency_key=key)
        headers = {"Location": f"/api/v1/returns/{made.public_id}/", **replay_mark(made.replayed)}
        return Response({"id": made.public_id}, status=202, headers=headers)


class ReturnDoor(Door):
    """The base of the paths below one return."""

    def visible(self, request: Request, public_id: str) -> ReturnView:
        """The return, if the account may see its order. Raises UnknownRun for foreign and for unknown ids."""
        inside = sees_all(request.user)
        view = answers.return_view(public_id, inside=inside)
        if view is None:
            raise UnknownRun(public_id)
        if not inside:
            order = queries.order_view(view.row.order_key)
            if order is None or order.account_id != request.user.pk:
                raise UnknownRun(public_id)
        return view


class ReturnDetailView(ReturnDoor):
    """One return."""

    @extend_schema(operation_id="get_return", responses=ReturnAnswer)
    def get(self, request: Request, public_id: str) -> Response:
        """The return; foreign and unknown ids give the same 404."""
        return Response(answers.answer(self.visible(request, public_id)))


class GoodsView(ReturnDoor):
    """The goods of one return."""

    permission_classes = [Operators]

    @extend_schema(
        operation_id="report_goods", request=GoodsSerializer, parameters=[IDEMPOTENCY_KEY], responses={202: or_pending(ReturnAnswer)}
    )
    def post(self, request: Request, public_id: str) -> Response:
        """Say what really came: 202, and the return goes on. 409: it waits for no goods any more."""
        view = self.visible(request, public_id)
        report = self.read(request, GoodsSerializer)
        payload = report_of(report)
        try:
            goods.read(payload, {(line.sku, line.unit_price): line.quantity for line in view.lines})
        except goods.Unreadable as problem:
            raise ValidationError({problem.field: [problem.problem]}) from None
        operator_verbs.signal(
            public_id,
            codes.RECEIVED,
            by=account_of(request),
            reason=report["reason"],
            payload=payload,
            signal_key=request.headers.get("Idempotency-Key"),
        )
        return Response(answers.answer(self.visible(request, public_id)), status=202)
