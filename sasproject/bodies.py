"""How much of a request's body is read, and for how long: decided by the path, before Django sees the request.

A body that says that it is too large is refused unread, one that does not say is counted, and one that does not come is given up.
So a request costs a stranger as much as it costs us, and none waits in a process for ever.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from io import BytesIO
from typing import IO, Any

from django.conf import settings
from django.core.exceptions import RequestAborted

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
MOST_BYTES = 1024 * 1024
# The first that fits counts. Each view may accept less.
MOST_BYTES_BY_PATH = (
    ("/healthz", 0),
    ("/readyz", 0),
    ("/metrics", 0),
    ("/hooks/carrier/", 100_000),
    ("/api/v1/orders/batch/", 8 * MOST_BYTES),
    ("/admin/", settings.DATA_UPLOAD_MAX_MEMORY_SIZE),
)
WITHIN_SECONDS = 30.0  # for the whole body

Message = dict[str, Any]


class Refused(Exception):
    """The request is not read to its end. status: of the answer. code: of its problem document at the API, if it has one."""

    def __init__(self, status: HTTPStatus, detail: str, code: str = "") -> None:
        super().__init__(detail)
        self.status, self.code = status, code


def most_bytes(path: str) -> int:
    """How large a body may be at this path."""
    return next((most for prefix, most in MOST_BYTES_BY_PATH if path.startswith(prefix)), MOST_BYTES)


async def read(scope: Mapping[str, Any], receive: Callable[[], Awaitable[Message]]) -> IO[bytes]:
    """The request's body; the caller closes it. Raises Refused, or RequestAborted if the client leaves before its end."""
    if scope["method"] not in METHODS:
        raise Refused(HTTPStatus.METHOD_NOT_ALLOWED, "The method is not known here.", "method_not_allowed")
    most = most_bytes(scope["path"])
    if _said(scope) > most:
        raise _too_large(most)
    try:
        async with asyncio.timeout(WITHIN_SECONDS):
            return await _counted(receive, most)
    except TimeoutError:
        raise Refused(HTTPStatus.REQUEST_TIMEOUT, "The request body did not come in time.") from None


async def _counted(receive: Callable[[], Awaitable[Message]], most: int) -> IO[bytes]:
    """A body that comes in one piece, as nearly all do, needs no temporary file."""
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body"):
        whole = message.get("body", b"")
        if len(whole) > most:
            raise _too_large(most)
        return BytesIO(whole)
    body: IO[bytes] = tempfile.SpooledTemporaryFile(max_size=settings.FILE_UPLOAD_MAX_MEMORY_SIZE)  # noqa: SIM115 - the caller closes it
    try:
        await _write(body, message, receive, most)
    except BaseException:  # the time is over, too
        body.close()
        raise
    body.seek(0)
    return body


async def _write(body: IO[bytes], message: Message, receive: Callable[[], Awaitable[Message]], most: int) -> None:
    size = 0
    while True:
        if message["type"] == "http.disconnect":
            raise RequestAborted
        size += len(message.get("body", b""))
        if size > most:
            raise _too_large(most)
        body.write(message.get("body", b""))
        if not message.get("more_body"):
            return
        message = await receive()


def answer(path: str, refused: Refused) -> list[Message]:
    """The messages that refuse the request and end its connection, of which a part was not read."""
    detail = str(refused)
    if refused.code and path.startswith("/api/"):
        kind = b"application/problem+json"
        facts = {"type": f"urn:problem:{refused.code}", "title": refused.status.phrase, "status": refused.status, "detail": detail}
        text = json.dumps({**facts, "code": refused.code})
    else:
        kind, text = b"text/plain; charset=utf-8", detail + "\n"
    headers = [(b"content-type", kind), (b"content-length", str(len(text)).encode()), (b"connection", b"close")]
    if refused.status == HTTPStatus.METHOD_NOT_ALLOWED:
        headers.append((b"allow", ", ".join(METHODS).encode()))
    return [
        {"type": "http.response.start", "status": int(refused.status), "headers": headers},
        {"type": "http.response.body", "body": text.encode()},
    ]


def _said(scope: Mapping[str, Any]) -> int:
    """The length that the request states; 0 where it states none that can be read, and then the body is counted."""
    lengths = [value for name, value in scope["headers"] if name.lower() == b"content-length"]
    return max((int(value) for value in lengths if value.isdigit()), default=0)


def _too_large(most: int) -> Refused:
    return Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"The request body is too large: at most {most} bytes here.", "too_large")
