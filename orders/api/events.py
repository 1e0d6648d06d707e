"""An order's history: as JSON, or live as server-sent events, resumed after `Last-Event-ID`.

A stream sends the events in the database and then waits for a notification. A lost notification delays an event by
seconds, but no event is left out: the stream's ids are the events' own `seq`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from typing import Any

from django.core.handlers.asgi import ASGIRequest
from django.db import connection
from django.http import HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.utils.translation import gettext as _
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.exceptions import APIException, ValidationError
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from orders import streams
from orders.api.base import Door
from orders.api.serializers import EventPage
from supervision.api.permissions import sees_all
from supervision.api.requests import refuse_unknown
from supervision.insight.live_events import subscribe
from supervision.insight.queries import archived_run, events_after, iso, of_a_process, why_of
from supervision.models import Run, StepEvent, StepState
from supervision.states import FINAL_RUN_STATES, Direction

STREAM = "text/event-stream"
HEARTBEAT_SECONDS = 15.0
GATHER_SECONDS = 0.1  # notifications come in bursts; one query reads the events of the whole burst
LONGEST_SECONDS = 900.0  # then the browser reconnects, and is authenticated again
FIRST = 200  # events in an expanded order


class StreamRenderer(BaseRenderer):
    """Makes `Accept: text/event-stream` acceptable; the view itself writes the stream."""

    media_type = STREAM
    format = "stream"
    charset = None

    def render(self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None) -> bytes:
        return json.dumps(data).encode()


class TooManyStreams(APIException):
    """The process, the client's address or the order has all of its streams already."""

    status_code = 503
    default_code = "too_many_streams"
    wait = 10


class EventsView(Door):
    """The history of one order."""

    renderer_classes = [JSONRenderer, StreamRenderer]

    @extend_schema(
        operation_id="list_events",
        parameters=[
            OpenApiParameter("after", {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}, description="only events after this seq"),
            OpenApiParameter("Last-Event-ID", {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}, OpenApiParameter.HEADER),
        ],
        responses={
            (200, "application/json"): EventPage,
            (200, STREAM): OpenApiResponse(OpenApiTypes.STR),
            204: OpenApiResponse(description="The order has ended and there are no more events: do not reconnect."),
        },
    )
    def get(self, request: Request, public_id: str) -> HttpResponseBase:
        """The history, oldest first; with `Accept: text/event-stream` new events follow until the order has ended."""
        refuse_unknown(request, ["after"])
        after = _number(request)
        order, reader = self.visible_order(request, public_id), reader_of(request)
        if request.accepted_renderer.media_type != STREAM:
            return Response({"results": _read(public_id, after, reader)[0], "next": None, "previous": None})
        events, ended = _read(public_id, after, reader)
        if ended and not events:
            return HttpResponse(status=204)
        if isinstance(request._request, ASGIRequest):
            place = streams.take(request, order.public_id)
            if place is None:
                raise TooManyStreams(_("Too many orders are being followed; please try again in a moment."))
            return streams.held(place, follow(order.public_id, after, reader), content_type=STREAM, headers=_HEADERS)
        # A synchronous server would send a stream only at its end: send the events so far, and the client reconnects.
        return StreamingHttpResponse([_RETRY, *map(_frame, events)], content_type=STREAM, headers=_HEADERS)


_RETRY = "retry: 2000\n\n"
_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


async def follow(public_id: str, after: int, reader: str | None = None) -> AsyncIterator[str]:
    """The order's events after this number, as they come, until it has ended."""
    started = said = time.monotonic()
    news = subscribe(public_id)
    # Subscribe before the first query, so that an event between the two is notified.
    waiting = asyncio.ensure_future(anext(news))
    try:
        await asyncio.sleep(0)
        yield _RETRY
        while True:
            events, ended = await streams.on_a_reader(_read_and_let_go)(public_id, after, reader)
            for event in events:
                yield _frame(event)
                after, said = event["seq"], time.monotonic()
            if ended or time.monotonic() - started > LONGEST_SECONDS:
                return
            done, _pending = await asyncio.wait([waiting], timeout=max(0.0, said + HEARTBEAT_SECONDS - time.monotonic()))
            if done:
                waiting.result()
                waiting = asyncio.ensure_future(anext(news))
                await asyncio.sleep(GATHER_SECONDS)
            if time.monotonic() - said >= HEARTBEAT_SECONDS:
                yield ": still here\n\n"
                said = time.monotonic()
    finally:
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError, StopAsyncIteration):
            await waiting
        await news.aclose()  # type: ignore[attr-defined]


def reader_of(request: Request) -> str | None:
    """The owner's name, for an owner, who sees less of the history; None for accounts that see all orders."""
    return None if sees_all(request.user) else request.user.get_username()


def event_answer(event: StepEvent, names: dict[int, str], reader: str | None = None) -> dict[str, Any]:
    """One event's JSON form. reader: an owner's name. Owners see no operator's name and no process or host, and their own reasons alone."""
    actor, why = event.actor, why_of(event)
    if reader is not None and actor != reader:
        actor, why = "engine" if of_a_process(event) else "shop", ""
    return {
        "seq": event.seq,
        "at": iso(event.at),
        "step": None if event.position is None else names.get(event.position),
        "direction": event.direction,
        "attempt": event.attempt,
        "from": event.from_state,
        "to": event.to_state,
        "actor": actor,
        "why": why,
    }


def first_events(public_id: str, address: str, reader: str | None) -> dict[str, Any]:
    """The oldest events of an order, and the address of the rest if there are more."""
    events, _ended = _read(public_id, 0, reader, FIRST + 1)
    return {"results": events[:FIRST], "next": f"{address}?after={events[FIRST - 1]['seq']}" if len(events) > FIRST else None}


def read_all(public_id: str, reader: str) -> list[dict[str, Any]]:
    """The whole history of an order, as the owner of this name sees it."""
    return _read(public_id, 0, reader)[0]


def _read(public_id: str, after: int, reader: str | None, most: int | None = None) -> tuple[list[dict[str, Any]], bool]:
    """The events after this number, and whether the order has ended. The state is read first, so no later event is missed."""
    run = Run.objects.filter(key=public_id).first()
    if run is None:
        return _read_archived(public_id, after, reader)
    events = events_after(run.pk, after, most)
    if not events:
        return [], run.process_state in FINAL_RUN_STATES
    steps = StepState.objects.filter(run_id=run.pk, direction=Direction.DO.value)
    names = dict(steps.values_list("position", "name"))
    return [event_answer(event, names, reader) for event in events], run.process_state in FINAL_RUN_STATES


def _read_archived(public_id: str, after: int, reader: str | None) -> tuple[list[dict[str, Any]], bool]:
    """The same for an order that was archived, or whose submission no consumer has taken up yet."""
    archived = archived_run(public_id)
    if archived is None:
        return [], False
    names = {step.position: step.name for step in archived.steps if step.direction == Direction.DO}
    return [event_answer(event, names, reader) for event in archived.events if event.seq > after], True


def _read_and_let_go(public_id: str, after: int, reader: str | None) -> tuple[list[dict[str, Any]], bool]:
    """Read, then close the database connection: a stream lives for minutes and must not keep one."""
    try:
        return _read(public_id, after, reader)
    finally:
        if not connection.in_atomic_block:
            connection.close()


def _frame(event: dict[str, Any]) -> str:
    return f"id: {event['seq']}\ndata: {json.dumps(event)}\n\n"


def _number(request: Request) -> int:
    raw = request.headers.get("Last-Event-ID") or request.query_params.get("after") or "0"
    if not (raw.isascii() and raw.isdecimal() and len(raw) <= 10 and int(raw) < 2**31):
        raise ValidationError({"after": [_("Expected the seq of an event.")]})
    return int(raw)
