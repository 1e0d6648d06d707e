"""A Content-Security-Policy on each answer: what a page may load and run.

The storefront and the API use only this site's files, and no inline scripts or styles. The admin's theme needs inline
scripts and evaluated expressions, so the paths in THEMED_PATHS get a looser policy. They too load nothing from other sites.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import iscoroutinefunction
from typing import Any

from django.http import HttpRequest, HttpResponseBase
from django.utils.decorators import sync_and_async_middleware

_COMMON = "base-uri 'none'; frame-ancestors 'none'; form-action 'self'; object-src 'none'"
STRICT = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    f"connect-src 'self'; manifest-src 'self'; {_COMMON}"
)
THEMED = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    f"img-src 'self' data:; font-src 'self' data:; connect-src 'self'; {_COMMON}"
)
# The admin's theme, and the API's documentation pages.
THEMED_PATHS = ("/admin/", "/api/docs/", "/api/redoc/")


@sync_and_async_middleware
def content_security_policy(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """Add the policy for the page's path, unless the view has set its own."""

    def protected(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        policy = THEMED if request.path_info.startswith(THEMED_PATHS) else STRICT
        response.headers.setdefault("Content-Security-Policy", policy)
        return response

    if iscoroutinefunction(get_response):

        async def answer_async(request: HttpRequest) -> HttpResponseBase:
            return protected(request, await get_response(request))

        return answer_async

    def answer(request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        return protected(request, get_response(request))

    return answer
