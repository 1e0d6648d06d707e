"""Correcting the warehouse's report on a return: what it would do, and doing it once."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext as _
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from orders.api.returns import GoodsLineSerializer, ReturnDoor, report_of
from orders.api.serializers import ProblemAnswer, ReturnAnswer
from orders.returns import answers, correcting, goods
from orders.returns.correction_plan import Plan
from orders.validation import MAX_LINES
from supervision.api.base import account_of
from supervision.api.errors import PROBLEM
from supervision.api.permissions import Operators
from supervision.api.reference.schema import IDEMPOTENCY_KEY
from supervision.api.shapes import Reason, Shape, Strict, Whole, or_pending


class CorrectedGoodsSerializer(Strict):
    """What really came, whole. Products that it leaves out did not come."""

    lines = GoodsLineSerializer(many=True, max_length=MAX_LINES)  # type: ignore[call-arg]


class CorrectionSerializer(CorrectedGoodsSerializer):
    """What really came, and why the report was wrong."""

    reason = Reason()
    version = Whole(min_value=0, required=False, help_text="as the plan says it: a return that was corrected since is refused")


class CorrectionPlanAnswer(Shape):
    """What a correction would do now."""

    version = serializers.IntegerField(help_text="the corrections so far")
    paid = serializers.BooleanField(help_text="whether the return was paid back already")
    worth = serializers.CharField(help_text="decimal string: of the accepted pieces after the correction")
    worth_before = serializers.CharField(help_text="decimal string")
    further = serializers.CharField(help_text="decimal string: what the pieces are worth that were missed and are paid now")
    too_much = serializers.CharField(help_text="decimal string: what was paid for pieces that did not come; negative takes it back")
    stock = serializers.DictField(child=serializers.IntegerField(), help_text="by SKU: the pieces that go into stock, or out of it")
    currency = serializers.CharField()
    words = serializers.CharField()


class CorrectionPlanView(ReturnDoor):
    """What a correction of one return would do."""

    permission_classes = [Operators]

    @extend_schema(operation_id="plan_correction", request=CorrectedGoodsSerializer, responses=CorrectionPlanAnswer)
    def post(self, request: Request, public_id: str) -> Response:
        """Look at what a correction would do: nothing is changed. 409: it cannot be."""
        self.visible(request, public_id)
        said = self.read(request, CorrectedGoodsSerializer)
        return Response(plan_facts(_fitting(lambda: correcting.plan(public_id, report_of(said)))))


class CorrectionView(ReturnDoor):
    """The correction of one return."""

    permission_classes = [Operators]

    @extend_schema(
        operation_id="correct_return",
        request=CorrectionSerializer,
        parameters=[IDEMPOTENCY_KEY],
        responses={202: OpenApiResponse(or_pending(ReturnAnswer), description="Corrected."), (422, PROBLEM): ProblemAnswer},
    )
    def post(self, request: Request, public_id: str) -> Response:
        """Correct the report: 202 once it is committed. It needs an `Idempotency-Key`; the same key corrects once. 409: it cannot be."""
        self.visible(request, public_id)
        said = self.read(request, CorrectionSerializer)
        key = request.headers.get("Idempotency-Key")
        if key is None:
            raise ValidationError({"idempotency_key": [_("A correction needs the header Idempotency-Key: the same key corrects once.")]})
        facts = {"reason": said["reason"], "by": account_of(request), "idempotency_key": key, "version": said.get("version")}
        _fitting(lambda: correcting.correct(public_id, report_of(said), **facts))
        return Response(answers.answer(self.visible(request, public_id)), status=202)


def _fitting(work: Any) -> Any:
    try:
        return work()
    except goods.Unreadable as problem:
        raise ValidationError({problem.field: [problem.problem]}) from None


def plan_facts(plan: Plan) -> dict[str, Any]:
    """A plan as JSON values."""
    money = {"worth": plan.worth(1), "worth_before": plan.worth(0), "further": plan.further, "too_much": plan.too_much}
    facts = {"version": plan.version, "paid": plan.paid, "stock": dict(plan.stock), "currency": plan.currency, "words": plan.in_words()}
    return {**facts, **{name: str(amount) for name, amount in money.items()}}
