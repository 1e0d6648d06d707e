"""The requests of verbs that another operator has to approve: list, look, approve, refuse."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.shortcuts import get_object_or_404
from django.utils.translation import gettext as _
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from supervision.api.base import Door, account_of
from supervision.api.incident_views import MoneyAnswer
from supervision.api.permissions import Operators, Watchers
from supervision.api.requests import PAGING, answer_of
from supervision.api.shapes import ReasonSerializer, Shape, page_answer
from supervision.approvals import deciding, waiting
from supervision.insight.queries import iso
from supervision.models import Approval

STATES = [state.value for state in Approval.State]


class ApprovalAnswer(Shape):
    """A verb that waits until another operator approves it, or what was decided."""

    id = serializers.IntegerField()
    state = serializers.ChoiceField(STATES, help_text="failed: approved, and not possible any more; `outcome` says why")
    verb = serializers.CharField()
    order = serializers.CharField(allow_null=True)
    step = serializers.CharField(allow_null=True)
    stake = MoneyAnswer(many=True)
    plan_version = serializers.CharField(allow_null=True, help_text="the order's state when it was asked for")
    reason = serializers.CharField()
    asked_by = serializers.CharField()
    asked_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField()
    decided_by = serializers.CharField(allow_null=True)
    decided_at = serializers.DateTimeField(allow_null=True)
    decision_reason = serializers.CharField(allow_null=True)
    carried_out_at = serializers.DateTimeField(allow_null=True)
    outcome = serializers.CharField(allow_null=True)


ApprovalPage = page_answer(ApprovalAnswer)


class ApprovalsView(Door):
    """All requests."""

    permission_classes = [Watchers]

    @extend_schema(
        operation_id="list_approvals",
        parameters=[OpenApiParameter("state", OpenApiTypes.STR, enum=STATES), OpenApiParameter("order", OpenApiTypes.STR), *PAGING],
        responses=ApprovalPage,
    )
    def get(self, request: Request) -> Response:
        """Requests, the newest first."""
        found = Approval.objects.all()
        if (state := request.query_params.get("state")) is not None:
            if state not in STATES:
                raise ValidationError({"state": [_("Expected one of: %(words)s.") % {"words": ", ".join(STATES)}]})
            found = found.filter(state=state)
        if order := request.query_params.get("order"):
            found = found.filter(order_key=order.replace("\0", ""))
        return answer_of(found, request, answer, field="asked_at", filters=["state", "order"])


class ApprovalView(Door):
    """One request."""

    permission_classes = [Watchers]

    @extend_schema(operation_id="get_approval", responses=ApprovalAnswer)
    def get(self, request: Request, pk: int) -> Response:
        """The request, and what was decided."""
        return Response(answer(get_object_or_404(Approval, pk=pk)))


class ApproveView(Door):
    """Approving a request."""

    verb = "approve"
    permission_classes = [Operators]

    @extend_schema(operation_id="approve", request=ReasonSerializer, responses={202: ApprovalAnswer})
    def post(self, request: Request, pk: int) -> Response:
        """Approve it as another operator: the verb is carried out once. 409 for the operator who asked, and where the order has changed."""
        get_object_or_404(Approval, pk=pk)
        row = deciding.approve(pk, by=account_of(request), **self.read(request, ReasonSerializer))
        return Response(answer(row), status=202)


class RefuseView(Door):
    """Refusing a request."""

    verb = "approve"
    permission_classes = [Operators]

    @extend_schema(operation_id="refuse", request=ReasonSerializer, responses={202: ApprovalAnswer})
    def post(self, request: Request, pk: int) -> Response:
        """Refuse it as another operator: nothing is done. 409 for the operator who asked."""
        get_object_or_404(Approval, pk=pk)
        row = deciding.refuse(pk, by=account_of(request), **self.read(request, ReasonSerializer))
        return Response(answer(row), status=202)


def answer(row: Approval) -> dict[str, Any]:
    """One request as the API answers it."""
    return {name: iso(value) if isinstance(value, datetime) else value for name, value in waiting.facts(row).items()}
