"""What the web role reads of a request: as much as its path needs, counted, and within a time."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from django.core.exceptions import RequestAborted

from sasproject import bodies
from sasproject.handler import ThreadedHandler

BATCH = "/api/v1/orders/batch/"


class Sent:
    """One request, part by part. read: how many bytes were asked for. With `stalls` nothing comes after the last part."""

    def __init__(self, path: str, *parts: bytes, length: int | None = None, method: str = "POST", stalls: bool = False) -> None:
        headers = [] if length is None else [(b"content-length", str(length).encode())]
        self.scope = {"type": "http", "method": method, "path": path, "headers": [(b"host", b"localhost"), *headers], "query_string": b""}
        self.parts, self.stalls, self.read, self.told = list(parts), stalls, 0, []

    async def receive(self) -> dict[str, Any]:
        if not self.parts:
            await asyncio.sleep(60)
        part = self.parts.pop(0)
        self.read += len(part)
        return {"type": "http.request", "body": part, "more_body": bool(self.parts) or self.stalls}

    async def send(self, message: dict[str, Any]) -> None:
        self.told.append(message)

    def answer(self) -> tuple[int, dict[bytes, bytes], bytes]:
        asyncio.run(ThreadedHandler(1)(self.scope, self.receive, self.send))
        start, body = self.told
        return start["status"], dict(start["headers"]), body["body"]


@pytest.mark.parametrize("path", ["/healthz", "/", "/hooks/stripe/", BATCH, "/admin/login/", "/nothing/"])
def test_a_body_that_says_it_is_too_large_is_refused_before_it_is_read(path):
    sent = Sent(path, b"x" * 65_536, length=2 * 1024**3, stalls=True)

    status, headers, _body = sent.answer()

    assert (status, headers[b"connection"], sent.read) == (413, b"close", 0)


def test_a_body_of_no_stated_length_is_counted_and_cut_off():
    sent = Sent("/checkout/", *[b"x" * 65_536] * 100)

    status, _headers, _body = sent.answer()

    assert status == 413
    assert sent.read == bodies.MOST_BYTES + 65_536, "the part that is too much is the last one that is read"


@pytest.mark.parametrize("parts", [(b"{",), ()])
def test_a_body_that_does_not_come_is_given_up(parts, monkeypatch):
    monkeypatch.setattr(bodies, "WITHIN_SECONDS", 0.05)

    assert Sent("/checkout/", *parts, length=10, stalls=True).answer()[0] == 408


def test_each_path_takes_as_much_as_it_needs():
    most = {path: bodies.most_bytes(path) for path in ("/healthz", "/hooks/carrier/", "/api/v1/orders/", BATCH, "/checkout/")}

    assert list(most.values()) == [0, 100_000, 1024**2, 8 * 1024**2, 1024**2]
    for path in most:
        whole = asyncio.run(bodies.read(Sent(path).scope, Sent(path, b"x" * most[path], b"").receive))
        assert len(whole.read()) == most[path]


def test_the_api_is_refused_by_a_problem_document():
    status, headers, body = Sent("/api/v1/orders/", length=2**21).answer()

    assert (status, headers[b"content-type"], json.loads(body)["code"]) == (413, b"application/problem+json", "too_large")


def test_a_client_that_leaves_is_sent_nothing():
    async def gone() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    with pytest.raises(RequestAborted):
        asyncio.run(bodies.read(Sent("/").scope, gone))


@pytest.mark.parametrize("method", ["TRACE", "CONNECT", "SECRET"])
def test_a_method_that_the_site_does_not_know_is_refused(method):
    status, headers, body = Sent("/", method=method).answer()

    assert (status, b"TRACE" in headers[b"allow"]) == (405, False)
    assert b"localhost" not in body, "the request is not sent back"
