"""Incidents at the API: causes that hold up orders or need an operator, one row per cause; and the alerts of single orders."""

from __future__ import annotations

from typing import Any

from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from supervision.api.base import Door, account_of
from supervision.api.permissions import Operators, Watchers
from supervision.api.requests import PAGING, answer_of, yes_or_no
from supervision.api.shapes import AlertAnswer, AlertPage, ReasonSerializer, Shape, page_answer
from supervision.approvals import rights
from supervision.incidents import lifecycle
from supervision.insight.queries import iso
from supervision.models import Alert, Incident, Run
from supervision.operations import operator_verbs
from supervision.outbox.incident_mail import link

ORDERS_NAMED = 200
SEVERITIES = [severity.value for severity in Incident.Severity]


class IncidentAnswer(Shape):
    """One cause that holds up orders or needs an operator. `orders`: how many orders it holds up now."""

    id = serializers.IntegerField()
    kind = serializers.CharField()
    cause = serializers.CharField(help_text="stable key")
    title = serializers.CharField()
    resource = serializers.CharField(allow_null=True)
    step = serializers.CharField(allow_null=True)
    code = serializers.CharField(allow_null=True)
    severity = serializers.ChoiceField(SEVERITIES)
    orders = serializers.IntegerField()
    opened_at = serializers.DateTimeField()
    closed_at = serializers.DateTimeField(allow_null=True)
    acknowledged_at = serializers.DateTimeField(allow_null=True)
    acknowledged_by = serializers.CharField(allow_null=True)
    notified_at = serializers.DateTimeField(allow_null=True)
    owner = serializers.CharField(allow_null=True, help_text="the operator who looks after it")
    link = serializers.CharField(help_text="its page in the console")


class MoneyAnswer(Shape):
    """An amount of money."""

    amount = serializers.CharField(help_text="decimal string")
    currency = serializers.CharField()


class IncidentDetailAnswer(IncidentAnswer):
    """One cause, with the orders that it holds up and their worth."""

    held = MoneyAnswer(many=True)
    order_ids = serializers.ListField(child=serializers.CharField(), help_text=f"of at most {ORDERS_NAMED} of the orders")
    acknowledge_reason = serializers.CharField(allow_null=True)


IncidentPage = page_answer(IncidentAnswer)


class IncidentsView(Door):
    """Open and closed incidents."""

    permission_classes = [Watchers]

    @extend_schema(
        operation_id="list_incidents",
        parameters=[
            OpenApiParameter("open", OpenApiTypes.STR, enum=["true", "false"], description="only these; else all"),
            OpenApiParameter("kind", OpenApiTypes.STR),
            *PAGING,
        ],
        responses=IncidentPage,
    )
    def get(self, request: Request) -> Response:
        """Incidents, the newest first."""
        found = Incident.objects.all()
        if (standing := yes_or_no(request, "open")) is not None:
            found = found.filter(closed_at__isnull=standing)
        if kind := request.query_params.get("kind"):
            found = found.filter(kind=kind.replace("\0", ""))
        return answer_of(found, request, _incident, field="opened_at", filters=["open", "kind"])


class IncidentView(Door):
    """One cause."""

    permission_classes = [Watchers]

    @extend_schema(operation_id="get_incident", responses=IncidentDetailAnswer)
    def get(self, request: Request, pk: int) -> Response:
        """The incident with the orders that it holds up, and what they are worth."""
        return Response(detail(get_object_or_404(Incident, pk=pk)))


class AcknowledgeIncidentView(Door):
    """Acknowledging an incident."""

    permission_classes = [Operators]
    verb = rights.INCIDENTS

    @extend_schema(operation_id="acknowledge_incident", request=ReasonSerializer, responses=IncidentDetailAnswer)
    def post(self, request: Request, pk: int) -> Response:
        """Record the operator who looks after it, and the reason. It stays open until its cause is gone, if that is not over.

        Harmless to repeat."""
        get_object_or_404(Incident, pk=pk)
        operator_verbs.acknowledge_incident(pk, by=account_of(request), **self.read(request, ReasonSerializer))
        return Response(detail(Incident.objects.get(pk=pk)))


def _incident(row: Incident) -> dict[str, Any]:
    return {
        "id": row.pk,
        "kind": row.kind,
        "cause": row.cause,
        "title": row.title,
        "resource": row.resource or None,
        "step": row.step or None,
        "code": row.code or None,
        "severity": row.severity,
        "orders": row.orders,
        "opened_at": iso(row.opened_at),
        "closed_at": iso(row.closed_at),
        "acknowledged_at": iso(row.acknowledged_at),
        "acknowledged_by": row.acknowledged_by or None,
        "notified_at": iso(row.notified_at),
        "owner": row.owner or None,
        "link": link(row.pk),
    }


def detail(row: Incident) -> dict[str, Any]:
    """One incident as the API answers it."""
    runs = lifecycle.runs_of(row.kind, row.cause) if row.closed_at is None else []
    return {
        **_incident(row),
        "held": [{"amount": str(amount), "currency": currency} for currency, amount in lifecycle.held(runs)],
        "order_ids": list(Run.objects.filter(pk__in=runs[:ORDERS_NAMED]).order_by("pk").values_list("key", flat=True)),
        "acknowledge_reason": row.acknowledge_reason or None,
    }


class AlertsView(Door):
    """The operators' alerts."""

    permission_classes = [Watchers]

    @extend_schema(
        operation_id="list_alerts",
        parameters=[
            OpenApiParameter("acknowledged", OpenApiTypes.STR, enum=["true", "false"], description="only these; else all"),
            *PAGING,
        ],
        responses=AlertPage,
    )
    def get(self, request: Request) -> Response:
        """Alerts, newest first."""
        found = Alert.objects.select_related("run")
        if (seen := yes_or_no(request, "acknowledged")) is not None:
            found = found.filter(acknowledged_at__isnull=not seen)
        return answer_of(found, request, _alert, field="raised_at", filters=["acknowledged"])


class AcknowledgeView(Door):
    """Acknowledging an alert."""

    permission_classes = [Operators]
    verb = rights.INCIDENTS

    @extend_schema(operation_id="acknowledge_alert", request=None, responses=AlertAnswer)
    def post(self, request: Request, pk: int) -> Response:
        """Record that an operator has seen the alert; harmless to repeat."""
        get_object_or_404(Alert, pk=pk)
        operator_verbs.acknowledge([pk], by=account_of(request))
        return Response(_alert(Alert.objects.select_related("run").get(pk=pk)))


def _alert(alert: Alert) -> dict[str, Any]:
    return {
        "id": alert.pk,
        "order": alert.run.key,
        "step": alert.step,
        "kind": alert.kind,
        "incident": alert.incident_id,
        "message": alert.message,
        "raised_at": iso(alert.raised_at),
        "acknowledged_at": iso(alert.acknowledged_at),
        "acknowledged_by": alert.acknowledged_by or None,
        "closed_at": iso(alert.closed_at),
    }
