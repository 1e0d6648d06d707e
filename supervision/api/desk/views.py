"""What operators note about orders and incidents, and who looks after them: the same rows as on the console's pages."""

from __future__ import annotations

from typing import Any

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from supervision.api.base import Door, account_of
from supervision.api.incident_views import IncidentDetailAnswer, detail
from supervision.api.permissions import Watchers
from supervision.api.requests import PAGING, answer_of, refuse_unknown
from supervision.api.shapes import Shape, Strict, Text, page_answer
from supervision.approvals import rights
from supervision.desk import notes
from supervision.insight.queries import iso
from supervision.models import Assignee, Incident, IncidentNote, RunNote
from supervision.operations import operator_verbs
from supervision.operations.operator_verbs import LONGEST_NOTE


class Prose(Text):
    """A text that may have several lines."""

    def to_internal_value(self, data: Any) -> str:
        super().to_internal_value(data.replace("\r\n", " ").replace("\n", " ").replace("\t", " "))
        return str(data).strip()


class NoteSerializer(Strict):
    """What the next operator should know."""

    text = Prose(max_length=LONGEST_NOTE)


class OwnerSerializer(Strict):
    """The name of an account that may act on orders; null: no one looks after it from now on."""

    owner = Text(max_length=150, allow_null=True)


class NoteAnswer(Shape):
    """A note, or a change of the owner. It is never changed."""

    id = serializers.IntegerField()
    author = serializers.CharField()
    text = serializers.CharField()
    at = serializers.DateTimeField()


class OwnerAnswer(Shape):
    """Who looks after an order."""

    owner = serializers.CharField(allow_null=True)
    since = serializers.DateTimeField(allow_null=True)


NotePage = page_answer(NoteAnswer)


class OrderNotesView(Door):
    """The notes on one order. They stay when it is archived."""

    permission_classes = [Watchers]

    @extend_schema(operation_id="list_order_notes", parameters=PAGING, responses=NotePage)
    def get(self, request: Request, public_id: str) -> Response:
        """The notes, the newest first; each change of the owner is one of them."""
        notes.known(public_id)
        return answer_of(RunNote.objects.filter(run_key=public_id), request, _note, field="at")

    @extend_schema(operation_id="note_order", request=NoteSerializer, responses={201: NoteAnswer})
    def post(self, request: Request, public_id: str) -> Response:
        """Add a note under your name. The same text again within a minute is the same note."""
        notes.known(public_id)
        row = notes.add(public_id, self.read(request, NoteSerializer)["text"], by=account_of(request))
        row.refresh_from_db()
        return Response(_note(row), status=201)


class OrderOwnerView(Door):
    """Who looks after one order."""

    permission_classes = [Watchers]

    @extend_schema(operation_id="get_order_owner", responses=OwnerAnswer)
    def get(self, request: Request, public_id: str) -> Response:
        """The operator who looks after it, or null."""
        refuse_unknown(request, [])
        notes.known(public_id)
        return Response(_owner(public_id))

    @extend_schema(operation_id="assign_order", request=OwnerSerializer, responses=OwnerAnswer)
    def put(self, request: Request, public_id: str) -> Response:
        """Give the order to this operator. Harmless to repeat."""
        notes.known(public_id)
        notes.assign(public_id, self.read(request, OwnerSerializer)["owner"] or "", by=account_of(request))
        return Response(_owner(public_id))


class IncidentNotesView(Door):
    """The notes on one incident."""

    permission_classes = [Watchers]
    verb = rights.INCIDENTS

    @extend_schema(operation_id="list_incident_notes", parameters=PAGING, responses=NotePage)
    def get(self, request: Request, pk: int) -> Response:
        """The notes, the newest first; each change of the owner is one of them."""
        row = get_object_or_404(Incident, pk=pk)
        return answer_of(IncidentNote.objects.filter(incident=row), request, _note, field="at")

    @extend_schema(operation_id="note_incident", request=NoteSerializer, responses={201: NoteAnswer})
    def post(self, request: Request, pk: int) -> Response:
        """Add a note under your name; 409 once the incident is closed. The same text again within a minute is the same note."""
        get_object_or_404(Incident, pk=pk)
        row = operator_verbs.note_incident(pk, self.read(request, NoteSerializer)["text"], by=account_of(request))
        row.refresh_from_db()
        return Response(_note(row), status=201)


class IncidentOwnerView(Door):
    """Who looks after one incident."""

    permission_classes = [Watchers]
    verb = rights.INCIDENTS

    @extend_schema(operation_id="get_incident_owner", responses=IncidentDetailAnswer)
    def get(self, request: Request, pk: int) -> Response:
        """The incident, whose `owner` looks after it."""
        refuse_unknown(request, [])
        return Response(detail(get_object_or_404(Incident, pk=pk)))

    @extend_schema(operation_id="assign_incident", request=OwnerSerializer, responses=IncidentDetailAnswer)
    def put(self, request: Request, pk: int) -> Response:
        """Give the incident to this operator. Harmless to repeat; 409 once it is closed."""
        get_object_or_404(Incident, pk=pk)
        owner = self.read(request, OwnerSerializer)["owner"] or ""
        notes.demand_operator(owner)
        operator_verbs.assign_incident(pk, owner, by=account_of(request))
        return Response(detail(Incident.objects.get(pk=pk)))


def _note(row: RunNote | IncidentNote) -> dict[str, Any]:
    return {"id": row.pk, "author": row.author, "text": row.text, "at": iso(row.at)}


def _owner(key: str) -> dict[str, Any]:
    row = Assignee.objects.filter(run_key=key).exclude(owner="").first()
    return {"owner": row.owner if row else None, "since": iso(row.since) if row else None}
