"""Pauses, resources and queues. Changes by operators take effect on the next claim."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from django.core.exceptions import ValidationError as FieldError
from django.db.models import Exists, OuterRef
from django.http import Http404
from django.shortcuts import get_object_or_404
from django.utils.translation import gettext as _
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from supervision.api.base import Door, account_of
from supervision.api.governance_shapes import (
    LiftSerializer,
    LimitsSerializer,
    OrderPauseSerializer,
    PauseAnswer,
    PausePage,
    PauseSerializer,
    QueuePage,
    ResourceAnswer,
    ResourcePage,
)
from supervision.api.operator_views import VerbDoor
from supervision.api.permissions import Watchers
from supervision.api.requests import PAGING, answer_of, refuse_unknown, yes_or_no
from supervision.api.shapes import ReasonSerializer
from supervision.approvals import rights
from supervision.errors import Refused, UnknownRun
from supervision.insight import autoscaling
from supervision.insight.queries import iso
from supervision.models import Pause, Resource
from supervision.operations import pauses, resource_limits

AT_FIELD = {"unknown_name": "name", "until_has_passed": "until", "has_ended": "name"}
MOMENTS = ("opened_at", "retry_at", "last_error_at")


class PausesView(Door):
    """The list of pauses, and pausing."""

    verb = "pause"
    permission_classes = [Watchers]

    @extend_schema(
        operation_id="list_pauses",
        parameters=[OpenApiParameter("active", OpenApiTypes.STR, enum=["true", "false"], description="only these; else all"), *PAGING],
        responses=PausePage,
    )
    def get(self, request: Request) -> Response:
        """Pauses, the newest first."""
        found = Pause.objects.annotate(active=_is_active())
        if (wanted := yes_or_no(request, "active")) is not None:
            found = found.filter(active=wanted)
        return answer_of(found, request, _pause, field="paused_at", filters=["active"])

    @extend_schema(operation_id="pause", request=PauseSerializer, responses={201: PauseAnswer})
    def post(self, request: Request) -> Response:
        """Stop claims of one order, agent, workflow or all. Running steps finish. An existing pause gets the new reason and time."""
        asked = self.read(request, PauseSerializer)
        until = _until(asked["until"])
        try:
            made = pauses.pause(asked["scope"], asked["name"], reason=asked["reason"], by=account_of(request), until=until)
        except UnknownRun as unknown:
            raise ValidationError({"name": [str(unknown)]}) from unknown
        except Refused as refusal:
            if refusal.code in AT_FIELD:
                raise ValidationError({AT_FIELD[refusal.code]: [str(refusal)]}) from refusal
            raise
        return Response(_pause(_row(made.pk)), status=201)


class PauseView(Door):
    """One pause."""

    verb = "pause"
    permission_classes = [Watchers]

    @extend_schema(operation_id="get_pause", responses=PauseAnswer)
    def get(self, request: Request, pk: int) -> Response:
        """One pause, active or ended."""
        return Response(_pause(_row(pk)))

    @extend_schema(
        operation_id="resume",
        parameters=[OpenApiParameter("reason", OpenApiTypes.STR, description="kept with the pause")],
        responses={200: PauseAnswer},
    )
    def delete(self, request: Request, pk: int) -> Response:
        """Resume: work continues at once. 409 if the pause has already ended."""
        refuse_unknown(request, ["reason"])
        row = _row(pk)
        said = {**(request.data if isinstance(request.data, Mapping) else {}), **request.query_params.dict()}
        reader = LiftSerializer(data=said)
        reader.is_valid(raise_exception=True)
        pauses.lift(row.scope, row.name, by=account_of(request), reason=reader.validated_data["reason"], pk=pk)
        return Response(_pause(_row(pk)))


class PauseOrderView(VerbDoor):
    """Pausing one order."""

    verb = "pause"

    asks = OrderPauseSerializer

    @extend_schema(operation_id="pause_order")
    def post(self, request: Request, public_id: str) -> Response:
        """Start no more steps of the order until it is resumed. Running steps finish. Also for an order not yet taken up."""
        asked = self.read(request, self.asks)
        until = _until(asked["until"])
        try:
            pauses.pause(Pause.Scope.ORDER, public_id, reason=asked["reason"], by=account_of(request), until=until)
        except Refused as refusal:
            if refusal.code == "until_has_passed":
                raise ValidationError({"until": [str(refusal)]}) from refusal
            raise
        return self.now(public_id)


class ResumeOrderView(VerbDoor):
    """Resuming one order."""

    verb = "pause"

    asks = ReasonSerializer

    @extend_schema(operation_id="resume_order")
    def post(self, request: Request, public_id: str) -> Response:
        """Resume the order at once. 409 if the order itself is not paused (but perhaps its agent or workflow is)."""
        asked = self.read(request, self.asks)
        self.find(public_id)
        pauses.lift(Pause.Scope.ORDER, public_id, by=account_of(request), reason=asked["reason"])
        return self.now(public_id)


class ResourcesView(Door):
    """The resources that agents call."""

    permission_classes = [Watchers]

    @extend_schema(operation_id="list_resources", responses=ResourcePage)
    def get(self, request: Request) -> Response:
        """Every resource with its limits, its breaker and its load."""
        refuse_unknown(request, [])
        return Response({"results": [_resource(row) for row in resource_limits.figures()], "next": None, "previous": None})


class ResourceView(Door):
    """One resource."""

    permission_classes = [Watchers]
    verb = rights.LIMITS

    @extend_schema(operation_id="get_resource", responses=ResourceAnswer)
    def get(self, request: Request, name: str) -> Response:
        """One resource with its limits, its breaker and its load."""
        return Response(self._now(name))

    @extend_schema(operation_id="change_resource", request=LimitsSerializer, responses={200: ResourceAnswer})
    def patch(self, request: Request, name: str) -> Response:
        """Set limits. They take effect on the next claim; the resource's history records the change."""
        changes = self.read(request, LimitsSerializer)
        try:
            resource_limits.change(name, by=account_of(request), **changes)
        except Resource.DoesNotExist:
            raise Http404 from None
        except FieldError as problem:
            raise ValidationError(problem.message_dict) from problem
        return Response(self._now(name))

    def _now(self, name: str) -> dict[str, Any]:
        row = next((row for row in resource_limits.figures() if row.name == name), None)
        if row is None:
            raise Http404
        return _resource(row)


class QueuesView(Door):
    """The load of each agent."""

    permission_classes = [Watchers]

    @extend_schema(operation_id="list_queues", responses=QueuePage)
    def get(self, request: Request) -> Response:
        """Each agent's load and its recommended consumers, read from the database: correct even if the broker lost messages."""
        refuse_unknown(request, [])
        return Response({"results": [asdict(row) for row in autoscaling.loads()], "next": None, "previous": None})


def _is_active() -> Exists:
    return Exists(pauses.active().filter(pk=OuterRef("pk")))


def _row(pk: int) -> Pause:
    return get_object_or_404(Pause.objects.annotate(active=_is_active()), pk=pk)


def _pause(row: Any) -> dict[str, Any]:
    return {
        "id": row.pk,
        "scope": row.scope,
        "name": row.name,
        "reason": row.reason,
        "paused_by": row.paused_by,
        "paused_at": iso(row.paused_at),
        "until": iso(row.until),
        "active": row.active,
        "lifted_at": iso(row.lifted_at),
        "lifted_by": row.lifted_by or None,
        "lift_reason": row.lift_reason or None,
    }


def _resource(row: resource_limits.Figures) -> dict[str, Any]:
    facts = asdict(row) | {name: iso(getattr(row, name)) for name in MOMENTS}
    facts["last_error"] = row.last_error or None
    return {name: facts[name] for name in facts if name not in ("now", "row_id")}


def _until(text: str | None) -> datetime | timedelta | None:
    try:
        return pauses.read_until(text) if text else None
    except ValueError as problem:
        raise ValidationError({"until": [str(problem) or _("Expected a time.")]}) from problem
