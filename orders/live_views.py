"""The order page's live part: one HTML fragment, sent as a stream of server-sent events or polled every two seconds.

There is one stream per open page, and one database listener per process for all of them (`supervision.insight.live_events`). A stream
holds no database connection between two queries.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.db import connection
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.template.loader import render_to_string
from django.utils.translation import get_language, override
from django.views.decorators.http import require_safe

from orders import streams
from orders.responses import private
from orders.views import order_facts, visible_order
from supervision.insight import live_events

HEARTBEAT_SECONDS = 15.0
# A step changes its state several times within milliseconds: one fragment shows all of these changes.
SETTLE_SECONDS = 0.2
# The server closes each stream after this time and the browser opens a new one, so no page stays with one process for ever.
LONGEST_SECONDS = 600.0
RETRY_MS = 2000


@require_safe
def fragment(request: HttpRequest, public_id: str) -> HttpResponse:
    """The live part of the order page, for pages without a stream."""
    view = visible_order(request, public_id)
    if view is None:
        return private(HttpResponse(status=404))
    return private(render(request, "orders/_standing.html", order_facts(view, request) | {"swapped": True}))


async def stream(request: HttpRequest, public_id: str) -> HttpResponseBase:
    """The live part of the order page, sent again after each change of the order, until the order has ended.

    204 tells the browser not to reconnect: this server cannot stream.
    """
    if request.method != "GET":
        return HttpResponse(status=405, headers={"Allow": "GET"})
    if not isinstance(request, ASGIRequest):
        return private(HttpResponse(status=204))
    picture = await sync_to_async(_picture)(request, public_id)
    if picture is None:
        return private(HttpResponse(status=404))
    place = streams.take(request, public_id)
    if place is None:
        return private(HttpResponse(status=503, headers={"Retry-After": "30"}))
    response = streams.held(place, _events(request, public_id), content_type="text/event-stream")
    response.headers["X-Accel-Buffering"] = "no"
    return private(response)  # type: ignore[arg-type]


async def _events(request: HttpRequest, public_id: str) -> AsyncIterator[str]:
    """Subscribe first and query then: a change between the two is seen twice rather than missed."""
    language = get_language()
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + LONGEST_SECONDS
    changes = live_events.subscribe(public_id)
    change: asyncio.Future[Any] = asyncio.ensure_future(anext(changes))
    shown = ""
    try:
        yield f"retry: {RETRY_MS}\n\n"
        beat_at = loop.time() + HEARTBEAT_SECONDS
        while loop.time() < ends_at:
            picture = await streams.on_a_reader(_picture)(request, public_id, language)
            if picture is None:
                return
            html, final = picture
            if html != shown:
                shown = html
                yield _event("order", html)
                beat_at = loop.time() + HEARTBEAT_SECONDS
            if final:
                yield _event("done", "")
                return
            while not change.done():
                await asyncio.wait({change}, timeout=max(0.0, beat_at - loop.time()))
                if loop.time() >= beat_at:
                    yield ": still here\n\n"
                    beat_at = loop.time() + HEARTBEAT_SECONDS
            change.result()  # a broken listener ends the stream: the page polls until the browser has reconnected
            await asyncio.sleep(SETTLE_SECONDS)
            change = asyncio.ensure_future(anext(changes))
    finally:
        change.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await change
        await changes.aclose()  # type: ignore[attr-defined]


def _picture(request: HttpRequest, public_id: str, language: str | None = None) -> tuple[str, bool] | None:
    """The present fragment, and whether it is the last one. Closes the database connection."""
    try:
        with override(language or get_language()):
            view = visible_order(request, public_id)
            if view is None:
                return None
            facts = order_facts(view, request) | {"swapped": True}
            return render_to_string("orders/_standing.html", facts), facts["standing"].final
    finally:
        if not connection.in_atomic_block:
            connection.close()


def _event(name: str, data: str) -> str:
    lines = "".join(f"data: {line}\n" for line in data.split("\n"))
    return f"event: {name}\n{lines}\n"
