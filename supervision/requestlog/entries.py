"""What the log keeps of one request and its answer: no query, no body, no address, and no part of the path that a client made up."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import get_resolver
from django.utils.functional import SimpleLazyObject, empty

from supervision.models import ApiRequest
from supervision.postgres.json_safe import text as safe

ROOT = "/api/"
CHANGES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
MASK = "[masked]"
LONGEST = 300
_TOKEN = re.compile(r"[0-9a-f]{40,}")  # the form of the API's tokens: one in a path was put there by mistake
_ORDER = re.compile(r"/orders/([A-Za-z0-9_.:\[\]-]{16,})/$")
_NAMES_ORDER = re.compile(r"(?:^|/)orders/<\w+:public_id>/")


class Entry(NamedTuple):
    """One request, as it is written. began: `time.monotonic()` of its arrival."""

    request_id: str
    began: float
    method: str
    path: str
    status: int
    code: str
    milliseconds: float
    account: int | None
    signed_in: str
    key: str
    order: str


def is_kept(request: HttpRequest, response: HttpResponseBase) -> bool:
    """Whether the log keeps this request: an API client's that changes something, or that is refused."""
    return request.path_info.startswith(ROOT) and (request.method in CHANGES or response.status_code >= 400)


def entry(request: HttpRequest, response: HttpResponseBase, *, began: float, seconds: float) -> Entry:
    """What is kept of this request. It asks the database for nothing."""
    account, signed_in = _account(request)
    key = "" if "Idempotency-Key" not in request.headers else ApiRequest.Key.GIVEN.value
    return Entry(
        request_id=safe(response.headers.get("Request-Id", ""))[:64],
        began=began,
        method=safe(request.method or "")[:10],
        path=path(request),
        status=response.status_code,
        code=getattr(response, "problem_code", ""),
        milliseconds=round(seconds * 1000, 1),
        account=account,
        signed_in=signed_in,
        key=ApiRequest.Key.REPLAYED.value if "Idempotent-Replayed" in response.headers else key,
        order=_order(request, response),
    )


def path(request: HttpRequest) -> str:
    """The path of the request. A part that is neither a word of the project's paths nor an id that they ask for is masked."""
    match = request.resolver_match
    given = {str(value) for name, value in match.kwargs.items() if name != "rest"} if match is not None else set()
    parts = [part if part in _words() or (part in given and not _TOKEN.fullmatch(part)) else MASK for part in request.path_info.split("/")]
    return "/".join(parts)[:LONGEST]


def _account(request: HttpRequest) -> tuple[int | None, str]:
    """The account that was found for this request. One that no view asked for is not looked up."""
    user = getattr(request, "user", None)
    if user is None or (isinstance(user, SimpleLazyObject) and user._wrapped is empty) or user.pk is None:  # type: ignore[attr-defined]
        return None, ""
    by_token = getattr(request, "auth", None) is not None
    number = user.pk if isinstance(user.pk, int) else None  # a project's accounts may have other keys: the log has numbers alone
    return number, (ApiRequest.SignedIn.TOKEN if by_token else ApiRequest.SignedIn.SESSION).value


def _order(request: HttpRequest, response: HttpResponseBase) -> str:
    """The public id of the order that the path names; of a request that has placed one, of that order."""
    match = request.resolver_match
    if match is not None and _NAMES_ORDER.search(match.route):
        named = str(match.kwargs["public_id"])
    else:
        placed = _ORDER.search(response.headers.get("Location", "")) if response.status_code < 300 else None
        named = placed[1] if placed is not None else ""
    return "" if _TOKEN.fullmatch(named) else named


@cache
def _words() -> frozenset[str]:
    """Every part of the project's API paths that is written out."""
    return frozenset({"", ROOT.strip("/"), *_literals(get_resolver().url_patterns)})


def _literals(patterns: Any) -> Iterator[str]:
    for one in patterns:
        yield from (part for part in str(one.pattern).split("/") if re.fullmatch(r"[a-z0-9-]+", part))
        yield from _literals(getattr(one, "url_patterns", ()))
