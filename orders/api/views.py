"""Placing orders, looking at them and cancelling them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from django.urls import reverse
from django.utils.translation import gettext as _
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.exceptions import PermissionDenied, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from orders import queries, services
from orders.api.base import Door
from orders.api.errors import refusal
from orders.api.events import first_events, reader_of
from orders.api.permissions import ReadOrBuy
from orders.api.serializers import (
    MAX_BATCH,
    BatchAnswer,
    BatchSerializer,
    ExpandedOrderAnswer,
    OrderAnswer,
    OrderPage,
    ProblemAnswer,
)
from orders.filters import OrderFilters
from orders.returns import answers
from orders.validation import OrderRequestSerializer, key_problem
from supervision.api.base import account_of, replay_mark
from supervision.api.errors import PROBLEM
from supervision.api.permissions import Clients, sees_all
from supervision.api.reference.schema import IDEMPOTENCY_KEY
from supervision.api.requests import PAGING, demand_match, filter_parameters, filtered, page_of, refuse_unknown, tagged
from supervision.api.shapes import ReasonSerializer, or_pending
from supervision.approvals import rights
from supervision.telemetry import spans

PLACED = OpenApiResponse(OrderAnswer, description="Accepted: the order is committed and will be processed. `Location` is its address.")
LIST = OrderFilters()
EXPANDABLE = ("events", "returns")
PAGES = ("ordering", "cursor", "page_size")


def accepted(answer: dict[str, Any], *, replayed: bool = False) -> Response:
    """202 with the order's address. replayed: an earlier request with the same key has placed it, and a header says so."""
    headers = {"Location": reverse("api:order", args=[answer["id"]])}
    return Response(answer, status=202, headers=headers | replay_mark(replayed))


class OrdersView(Door):
    """The account's orders (for operators and viewers: all orders), and placing one."""

    permission_classes = [ReadOrBuy]

    @extend_schema(
        operation_id="list_orders",
        parameters=[
            *filter_parameters(LIST),
            OpenApiParameter("ordering", OpenApiTypes.STR, enum=["created_at", "-created_at"]),
            *PAGING,
        ],
        responses=OrderPage,
    )
    def get(self, request: Request) -> Response:
        """One page of orders, newest first unless `ordering` says otherwise."""
        refuse_unknown(request, [*LIST.fields, *PAGES])
        found = queries.all_orders() if sees_all(request.user) else queries.orders_of(account_of(request))
        ordering = _choice(request, "ordering", ["created_at", "-created_at"]) or "-created_at"
        rows, links = page_of(filtered(LIST, found, request), request, field="created_at", descending=ordering.startswith("-"))
        return Response({"results": [queries.answer(view) for view in queries.order_views(rows, inside=sees_all(request.user))], **links})

    @extend_schema(
        operation_id="place_order",
        request=OrderRequestSerializer,
        parameters=[IDEMPOTENCY_KEY],
        responses={202: PLACED, (422, PROBLEM): ProblemAnswer},
    )
    def post(self, request: Request) -> Response:
        """Place an order: 202 once it is committed. Later failures of processes or of the broker cannot lose it."""
        key = request.headers.get("Idempotency-Key")
        placed = services.place_order(request.data, account=account_of(request), idempotency_key=key)
        return accepted(placed.answer, replayed=placed.replayed)


class BatchView(Door):
    """Many orders in one request."""

    permission_classes = [Clients]
    body_limit = 8 * 1024 * 1024

    @extend_schema(
        operation_id="place_orders",
        request=BatchSerializer,
        parameters=[IDEMPOTENCY_KEY],
        responses={202: BatchAnswer},
    )
    def post(self, request: Request) -> Response:
        """Place up to 500 orders: one result each, in order. Valid orders are accepted even if others are refused."""
        outcomes = services.place_orders(_items(request), account=account_of(request))
        results = []
        for index, outcome in enumerate(outcomes):
            if isinstance(outcome, services.Placed):
                results.append({"index": index, "status": 202, "id": outcome.public_id, "number": outcome.answer["number"]})
            else:
                status, members = refusal(outcome)
                results.append({"index": index, "status": status, **members})
        placed = [outcome.replayed for outcome in outcomes if isinstance(outcome, services.Placed)]
        return Response({"results": results}, status=202, headers=replay_mark(bool(placed) and all(placed)))


class OrderDetailView(Door):
    """One order."""

    @extend_schema(
        operation_id="get_order",
        parameters=[
            OpenApiParameter("expand", OpenApiTypes.STR, description=f"what to add, with commas between: {', '.join(EXPANDABLE)}"),
            OpenApiParameter("If-None-Match", OpenApiTypes.STR, OpenApiParameter.HEADER, description="the ETag of an earlier answer"),
            OpenApiParameter("ETag", OpenApiTypes.STR, OpenApiParameter.HEADER, response=[200, 304], description="names this answer"),
        ],
        responses={200: ExpandedOrderAnswer, 304: OpenApiResponse(description="The order is still as in the answer with this ETag.")},
    )
    def get(self, request: Request, public_id: str) -> Response:
        """The order with its steps; foreign and unknown ids give the same 404.

        The `ETag` is for `If-None-Match` here and for `If-Match` at the order's verbs. An expanded answer has none.
        """
        refuse_unknown(request, ["expand"])
        wanted = _expanded(request)
        order = self.visible_order(request, public_id)
        answer = queries.answer(order)
        trace = {"trace": spans.shown(order.public_id)} if sees_all(request.user) else {}
        if not wanted:
            return tagged(answer, request, trace)
        answer |= trace
        if "events" in wanted:
            answer["events"] = first_events(order.public_id, reverse("api:events", args=[order.public_id]), reader_of(request))
        if "returns" in wanted:
            found = answers.of_order(order.public_id, order.archived, inside=sees_all(request.user))
            answer["returns"] = [answers.answer(one) for one in found]
        return Response(answer)


class CancelView(Door):
    """Cancelling one order."""

    matches = True

    @extend_schema(operation_id="cancel_order", request=ReasonSerializer, responses={202: or_pending(OrderAnswer)})
    def post(self, request: Request, public_id: str) -> Response:
        """202: the order will end Cancelled (or Error while an undo step is stuck), never Processed. 409: it is too late."""
        order = self.visible_order(request, public_id)
        if order.account_id != request.user.pk and not rights.may(request.user, "cancel"):
            raise PermissionDenied
        demand_match(queries.answer(order), request)
        services.cancel_order(
            public_id, by=services.acting_on(order.account_id, account_of(request)), reason=self.read(request, ReasonSerializer)["reason"]
        )
        return accepted(queries.answer(self.visible_order(request, public_id)))


def _items(request: Request) -> list[services.Item]:
    data = request.data
    if not isinstance(data, Mapping) or not isinstance(data.get("orders"), list):
        raise ValidationError({"orders": [_("Expected a list of orders.")]})
    if unknown := [name for name in data if name != "orders"]:
        raise ValidationError({name[:100]: [_("This field is not known.")] for name in unknown[:20]})
    if not 1 <= len(data["orders"]) <= MAX_BATCH:
        raise ValidationError({"orders": [_("Expected 1 to %(most)d orders.") % {"most": MAX_BATCH}]})
    batch_key = request.headers.get("Idempotency-Key")
    if batch_key is not None and (wrong := key_problem(batch_key)):
        raise ValidationError({"idempotency_key": [wrong]})
    items = []
    for index, order in enumerate(data["orders"]):
        key = None
        if isinstance(order, dict):
            key = order.pop("idempotency_key", None)
        if key is None and batch_key is not None:
            # Keys are derived from the batch's key: a batch sent again places nothing twice even if its orders have no keys.
            key = hashlib.sha256(f"{batch_key}/{index}".encode()).hexdigest()
        items.append(services.Item(data=order, idempotency_key=key))
    return items


def _expanded(request: Request) -> set[str]:
    wanted = set(filter(None, request.query_params.get("expand", "").split(",")))
    if not wanted <= set(EXPANDABLE):
        raise ValidationError({"expand": [_("Expected one or several of: %(words)s.") % {"words": ", ".join(EXPANDABLE)}]})
    return wanted


def _choice(request: Request, name: str, choices: list[str]) -> str | None:
    value = request.query_params.get(name)
    if value is not None and value not in choices:
        raise ValidationError({name: [_("Expected one of: %(words)s.") % {"words": ", ".join(choices)}]})
    return value
