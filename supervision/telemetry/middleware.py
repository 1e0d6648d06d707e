"""The middleware that measures requests. Put `supervision.telemetry.middleware.measured` first in MIDDLEWARE."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from inspect import iscoroutinefunction
from typing import Any

from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.decorators import sync_and_async_middleware

from supervision.telemetry import measures, spans

METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
PROBES = ("/healthz", "/readyz", "/metrics")


@sync_and_async_middleware
def measured(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """Count each request by method, route and class of status; with spans on, tell of it. A stream counts until it begins."""
    if iscoroutinefunction(get_response):

        async def answer_async(request: HttpRequest) -> HttpResponseBase:
            began, told = time.monotonic(), _began(request)
            response: HttpResponseBase = await get_response(request)
            _ended(request, response, began, told)
            return response

        return answer_async

    def answer(request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        began, told = time.monotonic(), _began(request)
        response: HttpResponseBase = get_response(request)
        _ended(request, response, began, told)
        return response

    return answer


def _began(request: HttpRequest) -> Any:
    return spans.active.request_began(request.headers.get("traceparent")) if spans.on else None


def _ended(request: HttpRequest, response: HttpResponseBase, began: float, told: Any) -> None:
    method = request.method if request.method in METHODS else measures.OTHER
    route = _route(request)
    measures.REQUESTS.observe(time.monotonic() - began, method, route, f"{response.status_code // 100}xx")
    if told is not None and not request.path_info.startswith((*PROBES, settings.STATIC_URL)):
        spans.active.request_ended(told, method, route, response.status_code)


def _route(request: HttpRequest) -> str:
    """The pattern of the URL, never the URL: it has no ids, and there are only so many."""
    if request.resolver_match is not None:
        return f"/{request.resolver_match.route}"
    return "static" if request.path_info.startswith(settings.STATIC_URL) else "unmatched"
