"""The middleware that records requests.

In MIDDLEWARE, put `supervision.requestlog.middleware.recorded` before the middleware that gives a request its id.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from inspect import iscoroutinefunction
from typing import Any

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.decorators import sync_and_async_middleware

from supervision.requestlog import entries, recording

log = logging.getLogger(__name__)


@sync_and_async_middleware
def recorded(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """Record what the API's clients change and what is refused to them. It costs a request no statement, and never its answer."""
    if iscoroutinefunction(get_response):

        async def answer_async(request: HttpRequest) -> HttpResponseBase:
            began = time.monotonic()
            response: HttpResponseBase = await get_response(request)
            _record(request, response, began)
            return response

        return answer_async

    def answer(request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        began = time.monotonic()
        response: HttpResponseBase = get_response(request)
        _record(request, response, began)
        return response

    return answer


def _record(request: HttpRequest, response: HttpResponseBase, began: float) -> None:
    if not entries.is_kept(request, response) or not recording.is_on():
        return
    try:
        recording.record(entries.entry(request, response, began=began, seconds=time.monotonic() - began))
    except Exception:
        log.exception("a request was not recorded")
