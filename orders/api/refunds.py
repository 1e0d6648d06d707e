"""Refunds of one order that operators ask for: the same checks, right and approval as on the console's page."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from decimal import Decimal
from functools import partial

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from orders.api.base import Door
from orders.api.serializers import ProblemAnswer
from orders.models import Refund
from orders.refunds import asking
from orders.refunds.recorded import to_pay_out
from orders.validation import MONEY, Pattern
from supervision.api.base import account_of, replay_mark
from supervision.api.errors import PROBLEM
from supervision.api.permissions import Watchers
from supervision.api.reference.schema import IDEMPOTENCY_KEY
from supervision.api.requests import PAGING, answer_of
from supervision.api.shapes import Reason, Shape, Strict, or_pending, page_answer
from supervision.insight.queries import iso


class RefundSerializer(Strict):
    """How much of the order's money goes back, and why."""

    amount = Pattern(MONEY, gettext_lazy('Expected an amount as a decimal string, such as "25.80".'))
    reason = Reason()


class AcceptedRefund(Shape):
    """The id of an accepted refund."""

    id = serializers.CharField()


class RefundAnswer(Shape):
    """A refund that was asked for."""

    id = serializers.CharField()
    number = serializers.CharField()
    amount = serializers.CharField(help_text="decimal string")
    owed = serializers.CharField(help_text="decimal string: what an operator has to pay out at the bank")
    currency = serializers.CharField()
    reason = serializers.CharField()
    asked_by = serializers.CharField()
    created_at = serializers.DateTimeField()


RefundPage = page_answer(RefundAnswer)


class OrderRefundsView(Door):
    """The refunds of one order."""

    verb = "refund"
    permission_classes = [Watchers]

    @extend_schema(operation_id="list_refunds", parameters=PAGING, responses=RefundPage)
    def get(self, request: Request, public_id: str) -> Response:
        """The refunds that operators have asked for, the newest first. Those of returns are in the returns."""
        self.visible_order(request, public_id)
        rows = Refund.objects.filter(order_key=public_id)
        waiting = to_pay_out(rows.values_list("public_id", flat=True))
        return answer_of(rows, request, partial(_refund, waiting=waiting), field="created_at")

    @extend_schema(
        operation_id="refund_order",
        request=RefundSerializer,
        parameters=[IDEMPOTENCY_KEY],
        responses={202: OpenApiResponse(or_pending(AcceptedRefund), description="Accepted."), (422, PROBLEM): ProblemAnswer},
    )
    def post(self, request: Request, public_id: str) -> Response:
        """Give a part of the money back: 202 once it is committed. It needs an `Idempotency-Key`; the same key pays once.

        409: no money came, the order is not done, or less is left of it.
        """
        said = self.read(request, RefundSerializer)
        key = request.headers.get("Idempotency-Key")
        if key is None:
            raise ValidationError({"idempotency_key": [_("A refund needs the header Idempotency-Key: the same key pays once.")]})
        made = asking.refund(
            public_id, amount=Decimal(said["amount"]), reason=said["reason"], by=account_of(request), idempotency_key=key
        )  # fmt: skip
        return Response({"id": made.public_id}, status=202, headers=replay_mark(made.replayed))


def shown(rows: Sequence[Refund]) -> list[dict[str, object]]:
    """These refunds as the API answers them: JSON values."""
    waiting = to_pay_out([row.public_id for row in rows])
    return [_refund(row, waiting=waiting) for row in rows]


def _refund(row: Refund, *, waiting: Collection[str]) -> dict[str, object]:
    facts = {name: getattr(row, name) for name in ("number", "currency", "reason", "asked_by")}
    owed = row.amount if row.public_id in waiting else Decimal("0.00")
    return {"id": row.public_id, **facts, "amount": str(row.amount), "owed": str(owed), "created_at": iso(row.created_at)}
