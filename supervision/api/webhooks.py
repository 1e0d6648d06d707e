"""The receivers of an account's messages: webhooks and reply tokens; and the log of deliveries."""

from __future__ import annotations

import json
from typing import Any, cast

from django.db.models import QuerySet
from django.http import Http404
from django.shortcuts import get_object_or_404
from django.utils.translation import gettext as _
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from supervision.api.base import Door, account_of
from supervision.api.outbound_shapes import (
    DELIVERED,
    DELIVERY_STATES,
    GIVEN_UP,
    WAITING,
    DeliveryAnswer,
    DeliveryPage,
    NewReplyTokenAnswer,
    NewWebhookAnswer,
    OneDeliveryAnswer,
    ReplyTokenPage,
    WebhookAnswer,
    WebhookPage,
    WebhookSerializer,
)
from supervision.api.permissions import Clients, Senders, operates, sees_all
from supervision.api.requests import PAGING, answer_of
from supervision.errors import Refused
from supervision.insight import directory
from supervision.insight.queries import iso
from supervision.models import Delivery, ReplyToken, WebhookEndpoint
from supervision.outbox import subscriptions
from supervision.outbox.address_policy import Forbidden


def client(request: Request) -> str:
    """The client name under which this account's orders and receivers are stored. The permissions have refused other accounts."""
    return cast(str, directory.current().client_of(account_of(request)))


class WebhooksView(Door):
    """The account's webhooks."""

    permission_classes = [Clients]

    @extend_schema(operation_id="list_webhooks", parameters=PAGING, responses=WebhookPage)
    def get(self, request: Request) -> Response:
        """The account's webhooks, newest first. Secrets are not shown again."""
        return answer_of(subscriptions.webhooks_of(client(request)), request, _webhook, field="id")

    @extend_schema(operation_id="register_webhook", request=WebhookSerializer, responses={201: NewWebhookAnswer})
    def post(self, request: Request) -> Response:
        """Register an address. It receives the events of orders placed from now on, each message signed with the secret."""
        wish = self.read(request, WebhookSerializer)
        try:
            made = subscriptions.register_webhook(client(request), wish["url"], wish.get("events", ()))
        except Forbidden as refusal:
            raise ValidationError({"url": [str(refusal)]}) from None
        answer = {"id": made.public_id, "secret": made.secret, "url": made.url, "events": made.events}
        return Response(answer, status=201)


class WebhookView(Door):
    """One webhook."""

    permission_classes = [Clients]

    @extend_schema(operation_id="get_webhook", responses=WebhookAnswer)
    def get(self, request: Request, public_id: str) -> Response:
        """The webhook as it is; its secret is not shown again."""
        return Response(_webhook(get_object_or_404(subscriptions.webhooks_of(client(request)), public_id=public_id)))

    @extend_schema(operation_id="remove_webhook", responses={204: None})
    def delete(self, request: Request, public_id: str) -> Response:
        """Send nothing more there. Deliveries that still wait are given up."""
        subscriptions.remove_webhook(get_object_or_404(subscriptions.webhooks_of(client(request)), public_id=public_id))
        return Response(status=204)


class TestWebhookView(Door):
    """Trying a webhook."""

    permission_classes = [Clients]

    @extend_schema(operation_id="test_webhook", request=None, responses={202: DeliveryAnswer})
    def post(self, request: Request, public_id: str) -> Response:
        """Send the webhook a signed message of type `webhook.test`, also if it wants other events only. It is tried once."""
        hook = get_object_or_404(subscriptions.webhooks_of(client(request)), public_id=public_id)
        row = subscriptions.send_test(hook, by=account_of(request).get_username())
        if row is None:
            raise Refused(_("Its receiver is gone or switched off."), "receiver_gone")
        return Response(_delivery(row), status=202)


class ReplyTokensView(Door):
    """The account's private reply queues."""

    permission_classes = [Clients]

    @extend_schema(operation_id="list_reply_tokens", parameters=PAGING, responses=ReplyTokenPage)
    def get(self, request: Request) -> Response:
        """The account's tokens, newest first, by their queues. The tokens themselves are not stored and cannot be shown."""
        return answer_of(subscriptions.tokens_of(client(request)), request, _token, field="id")

    @extend_schema(operation_id="issue_reply_token", request=None, responses={201: NewReplyTokenAnswer})
    def post(self, request: Request) -> Response:
        """A new token and the name of its queue. The events of orders that name the token as `reply_to` go to that queue."""
        row, token = subscriptions.issue_reply_token(client(request))
        return Response({"id": _id_of(row), "token": token, "queue": row.queue}, status=201)


class ReplyTokenView(Door):
    """One private reply queue."""

    permission_classes = [Clients]

    @extend_schema(operation_id="revoke_reply_token", responses={204: None})
    def delete(self, request: Request, name: str) -> Response:
        """Revoke the token with this id or queue: no order can name it any more, and its queue is deleted."""
        token = subscriptions.find_token(client(request), name)
        if token is None:
            raise Http404
        subscriptions.revoke_reply_token(token)
        return Response(status=204)


class DeliveriesView(Door):
    """The log of deliveries."""

    permission_classes = [Senders]

    @extend_schema(
        operation_id="list_deliveries",
        parameters=[
            OpenApiParameter("state", OpenApiTypes.STR, enum=DELIVERY_STATES),
            OpenApiParameter("order", OpenApiTypes.STR, description="an order's public id"),
            OpenApiParameter("webhook", OpenApiTypes.STR, description="a webhook's id"),
            *PAGING,
        ],
        responses=DeliveryPage,
    )
    def get(self, request: Request) -> Response:
        """The account's deliveries (for operators and viewers: all deliveries), newest first."""
        filters = ["state", "order", "webhook"]
        within = "" if sees_all(request.user) or {"order", "webhook"} & set(request.query_params) else "client"
        return answer_of(_filtered(_visible(request), request), request, _delivery, field="id", filters=filters, within=within)


class DeliveryView(Door):
    """One delivery."""

    permission_classes = [Senders]

    @extend_schema(operation_id="get_delivery", responses=OneDeliveryAnswer)
    def get(self, request: Request, public_id: str) -> Response:
        """The delivery with its exact body and every try."""
        row = get_object_or_404(_visible(request), public_id=public_id)
        reader = None if sees_all(request.user) else account_of(request).get_username()
        return Response({**_delivery(row), "body": row.body, "log": [_entry(entry, reader) for entry in row.log]})


class RedeliverView(Door):
    """Sending a delivery again."""

    permission_classes = [Senders]

    @extend_schema(operation_id="redeliver", request=None, responses={202: DeliveryAnswer})
    def post(self, request: Request, public_id: str) -> Response:
        """Send it again now with the same message id, in any state. If that fails, it is retried for three more days."""
        row = get_object_or_404(_visible(request), public_id=public_id)
        if not subscriptions.redeliver([row.pk], by=account_of(request).get_username()):
            raise Refused(_("Its receiver is gone or switched off."), "receiver_gone")
        return Response(_delivery(get_object_or_404(_visible(request), pk=row.pk)), status=202)


def _visible(request: Request) -> QuerySet[Delivery]:
    all_clients = sees_all(request.user) if request.method in ("GET", "HEAD") else operates(request.user)
    return subscriptions.deliveries_of(None if all_clients else client(request))


def _entry(entry: dict[str, Any], reader: str | None) -> dict[str, Any]:
    """One entry of a log. reader: a client's own name. Clients see no operator's name, as in the history of their orders."""
    hidden = reader is not None and entry.get("asked_by", reader) != reader
    return {**entry, "asked_by": "operator"} if hidden else entry


def _filtered(rows: QuerySet[Delivery], request: Request) -> QuerySet[Delivery]:
    chosen = {name: request.query_params.get(name) for name in ("state", "order", "webhook")}
    for name, value in chosen.items():
        if value is not None and "\0" in value:
            raise ValidationError({name: [_("Control characters are not allowed.")]})
    if chosen["order"] is not None:
        rows = subscriptions.about_order(rows, chosen["order"])
    if chosen["webhook"] is not None:
        rows = subscriptions.to_webhook(rows, chosen["webhook"])
    if chosen["state"] is None:
        return rows
    if chosen["state"] not in DELIVERY_STATES:
        raise ValidationError({"state": [_("Expected one of: %(words)s.") % {"words": ", ".join(DELIVERY_STATES)}]})
    return rows.filter(delivered_at__isnull=chosen["state"] != DELIVERED, given_up_at__isnull=chosen["state"] != GIVEN_UP)


def _webhook(row: WebhookEndpoint) -> dict[str, Any]:
    return {
        "id": row.public_id,
        "url": row.url,
        "events": row.events,
        "active": row.active,
        "failures": row.failures,
        "failing_since": iso(row.failing_since),
        "created_at": iso(row.created_at),
    }


def _id_of(row: ReplyToken) -> str:
    return row.queue.partition(".")[2]


def _token(row: ReplyToken) -> dict[str, Any]:
    return {"id": _id_of(row), "queue": row.queue, "created_at": iso(row.created_at)}


def _delivery(row: Delivery) -> dict[str, Any]:
    state = DELIVERED if row.delivered_at else GIVEN_UP if row.given_up_at else WAITING
    return {
        "id": row.public_id,
        "message_id": row.message_id,
        "order": json.loads(row.body)["data"]["order"],
        "seq": row.seq,
        "event": row.event,
        "webhook": row.endpoint.public_id if row.endpoint else None,
        "queue": row.reply_token.queue if row.reply_token else None,
        "state": state,
        "tries": row.tries,
        "status_code": row.status_code,
        "last_error": row.last_error or None,
        "created_at": iso(row.created_at),
        "next_try_at": iso(row.not_before) if state == WAITING else None,
        "delivered_at": iso(row.delivered_at),
        "given_up_at": iso(row.given_up_at),
    }
