"""Headers on each answer: its name (`Request-Id`), what is left of a client's rate, what a page may load and run, and who stores it.
And the check of the request's host, which the probes leave out, and of what the console's lists cannot look for.

The storefront and the API use only this site's files, and no inline scripts or styles. The admin's theme needs inline
scripts and styles, so the paths in THEMED_PATHS get a looser policy. They too load nothing from other sites, and no page evaluates
text as a script (ADR 47).
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from inspect import iscoroutinefunction
from typing import Any
from uuid import uuid4

from django.conf import settings
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db import DataError
from django.http import HttpRequest, HttpResponseBase, HttpResponsePermanentRedirect
from django.middleware.common import CommonMiddleware
from django.utils.decorators import sync_and_async_middleware
from django.utils.deprecation import MiddlewareMixin

from orders.api import errors

_COMMON = "base-uri 'none'; frame-ancestors 'none'; form-action 'self'; object-src 'none'"
STRICT = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    f"connect-src 'self'; manifest-src 'self'; {_COMMON}"
)
THEMED = (
    "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    f"img-src 'self' data:; font-src 'self' data:; connect-src 'self'; {_COMMON}"
)
THEMED_PATHS = ("/admin/",)

_ID = re.compile(r"[\w.:-]{1,64}", re.ASCII)


def _added(headers: Callable[[HttpRequest, HttpResponseBase], None]) -> Callable[..., Any]:
    """A middleware, for sync and async servers, that adds these headers to each answer."""

    @sync_and_async_middleware
    def middleware(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
        if iscoroutinefunction(get_response):

            async def answer_async(request: HttpRequest) -> HttpResponseBase:
                response: HttpResponseBase = await get_response(request)
                headers(request, response)
                return response

            return answer_async

        def answer(request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
            response: HttpResponseBase = get_response(request)
            headers(request, response)
            return response

        return answer

    return middleware


@_added
def content_security_policy(request: HttpRequest, response: HttpResponseBase) -> None:
    """Add the policy for the page's path, unless the view has set its own."""
    response.headers.setdefault("Content-Security-Policy", THEMED if request.path_info.startswith(THEMED_PATHS) else STRICT)


@_added
def request_headers(request: HttpRequest, response: HttpResponseBase) -> None:
    """Name the request, and say what is left of the client's rate where it was counted (`orders.api.throttling`).

    A trusted proxy may name it (`X-Request-Id`), so that its log and the client's have one name.
    """
    named = request.headers.get("X-Request-Id", "") if settings.TRUST_PROXY else ""
    response.headers["Request-Id"] = named if _ID.fullmatch(named) else uuid4().hex
    if quota := getattr(request, "quota", None):
        response.headers["RateLimit-Policy"] = f'"default";q={quota.most};w={quota.seconds}'
        response.headers["RateLimit"] = f'"default";r={quota.left};t={quota.wait}'


@_added
def stored_by_no_one(request: HttpRequest, response: HttpResponseBase) -> None:
    """Let no browser and no proxy store what a session or a token was shown, unless the view says how; signing out empties the cache."""
    if settings.SESSION_COOKIE_NAME in request.COOKIES or "Authorization" in request.headers:
        response.headers.setdefault("Cache-Control", "private, no-store")
    if request.method == "POST" and request.path_info.endswith("/logout/"):
        response.headers["Clear-Site-Data"] = '"cache"'


class Common(CommonMiddleware):
    """Django's CommonMiddleware, which refuses a host that ALLOWED_HOSTS does not name. The probes answer under any name.

    Prometheus and operators ask a machine by its own name or address. The answers of the probes have no address in them.
    """

    def process_request(self, request: HttpRequest) -> HttpResponsePermanentRedirect | None:
        """None: go on. A redirect is the answer."""
        return None if request.path_info.strip("/") in settings.PROBES else super().process_request(request)


_NO_NUMBER = "expected a number"  # Django's words for a key that cannot be one


class UnreadableAddress(MiddlewareMixin):
    """Answers 400 instead of 500 where a page of the console was asked for what it cannot look for.

    That is a NUL in its address or among the rows selected there (PostgreSQL keeps none), and a selected row that is no number.
    The lists' own filters and searches, and forms, name the field themselves.
    """

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponseBase | None:
        """None: it is another error."""
        if not request.path_info.startswith(THEMED_PATHS) or not isinstance(exception, ValueError | DataError):
            return None
        selected = request.POST.getlist(ACTION_CHECKBOX_NAME) if request.method == "POST" else []
        asked = (text for name, values in request.GET.lists() for text in (name, *values))
        unreadable = any("\0" in text for text in (request.path_info, *asked, *selected))
        if isinstance(exception, ValueError) and _NO_NUMBER in str(exception):
            unreadable = unreadable or any(not text.isdecimal() for text in selected)
        if not unreadable:
            return None
        return errors.bad_request(request, exception)
