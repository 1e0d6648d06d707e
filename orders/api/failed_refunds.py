"""Refunds that failed after they were accepted: the list of an order's, and paying one again."""

from __future__ import annotations

import secrets

from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from orders.api.base import Door
from orders.api.refunds import AcceptedRefund
from orders.api.serializers import ProblemAnswer
from orders.refunds.again import failed_of, pay_again
from supervision.api.base import account_of, replay_mark
from supervision.api.errors import PROBLEM
from supervision.api.permissions import Watchers
from supervision.api.reference.schema import IDEMPOTENCY_KEY
from supervision.api.shapes import Reason, Shape, Strict, Text, or_pending


class PayRefundAgainSerializer(Strict):
    """Which failed refund is paid again, and why."""

    refund = Text(max_length=255, help_text="its id at the payment service, as the list says it")
    reason = Reason()


class FailedRefundAnswer(Shape):
    """Money that was sent back and has not arrived."""

    refund = serializers.CharField()
    amount = serializers.CharField()
    currency = serializers.CharField()
    found_at = serializers.DateTimeField()
    under_way = serializers.BooleanField(help_text="it is being paid again")


class FailedRefundsAnswer(Shape):
    """The failed refunds of an order."""

    results = FailedRefundAnswer(many=True)


class FailedRefundsView(Door):
    """The failed refunds of one order."""

    permission_classes = [Watchers]
    verb = "refund"

    @extend_schema(operation_id="list_failed_refunds", responses=FailedRefundsAnswer)
    def get(self, request: Request, public_id: str) -> Response:
        """The refunds of this order that failed after they were accepted and were not paid again yet, the oldest first."""
        order = self.visible_order(request, public_id)
        found = failed_of(order.public_id)
        return Response(
            {
                "results": [
                    {
                        "refund": one.refund,
                        "amount": str(one.amount),
                        "currency": one.currency,
                        "found_at": one.found_at,
                        "under_way": one.under_way,
                    }
                    for one in found
                ]
            }
        )

    @extend_schema(
        operation_id="pay_refund_again",
        request=PayRefundAgainSerializer,
        parameters=[IDEMPOTENCY_KEY],
        responses={202: OpenApiResponse(or_pending(AcceptedRefund), description="Accepted."), (422, PROBLEM): ProblemAnswer},
    )
    def post(self, request: Request, public_id: str) -> Response:
        """Send the money of a failed refund again: 202 once it is committed. 409: nothing is owed, or it may be on its way already."""
        said = self.read(request, PayRefundAgainSerializer)
        key = request.headers.get("Idempotency-Key") or secrets.token_urlsafe(16)
        made = pay_again(public_id, said["refund"], reason=said["reason"], by=account_of(request), idempotency_key=key)
        return Response({"id": made.public_id}, status=202, headers=replay_mark(made.replayed))
