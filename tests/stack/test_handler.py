"""How the web role runs Django: few threads, one thread switch per request, streams that hold no thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from django.core.signals import request_finished
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.urls import path
from django.utils.translation import get_language
from django.views.decorators.csrf import csrf_exempt

from orders import streams
from sasproject import urls
from sasproject.handler import ThreadedHandler
from supervision import testing
from tests.shopping import a_product, place

WITHIN_SECONDS = 30


class Views:
    """Events that the views below wait for, and their measurements."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.waiting = threading.Semaphore(0)
        self.left = threading.Event()
        self.side_by_side = self.most = 0
        self.lock = threading.Lock()


seen = Views()


@csrf_exempt
def echo(request: HttpRequest) -> HttpResponse:
    return HttpResponse(request.body)


def wait(request: HttpRequest) -> HttpResponse:
    with seen.lock:
        seen.side_by_side += 1
        seen.most = max(seen.most, seen.side_by_side)
    seen.waiting.release()
    assert seen.go_on.wait(WITHIN_SECONDS)
    with seen.lock:
        seen.side_by_side -= 1
    return HttpResponse("done")


def broken(request: HttpRequest) -> HttpResponse:
    raise RuntimeError("on purpose")


def parts(request: HttpRequest) -> StreamingHttpResponse:
    def told() -> Iterator[bytes]:
        yield b"one "
        yield threading.current_thread().name.split("_")[0].encode()

    return StreamingHttpResponse(told())


async def stream(request: HttpRequest) -> StreamingHttpResponse:
    async def told() -> AsyncIterator[str]:
        try:
            yield f"in {get_language()}"
            await asyncio.sleep(WITHIN_SECONDS)
            yield "too late"
        finally:
            seen.left.set()

    return StreamingHttpResponse(told())


urlpatterns = [path(f"{view.__name__}/", view) for view in (echo, wait, broken, parts, stream)] + urls.urlpatterns


@pytest.fixture(autouse=True)
def _views(settings) -> Iterator[None]:
    settings.ROOT_URLCONF = __name__
    settings.SECURE_SSL_REDIRECT = False
    seen.__init__()  # type: ignore[misc]
    yield
    seen.go_on.set()


class Visit:
    """One request, as an ASGI server passes it on, and its response."""

    def __init__(self, handler: ThreadedHandler, where: str, *body: bytes, language: str = "en") -> None:
        headers = [(b"host", b"localhost"), (b"accept-language", language.encode())]
        self.scope = {"type": "http", "method": "POST" if body else "GET", "path": where, "headers": headers, "query_string": b""}
        self.handler, self.body = handler, list(body) or [b""]
        self.status, self.answer, self.whole = 0, b"", False
        self.told, self.gone = asyncio.Event(), asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        if self.body:
            part = self.body.pop(0)
            return {"type": "http.request", "body": part, "more_body": bool(self.body)}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        else:
            self.answer += message.get("body", b"")
            self.whole = not message.get("more_body", False)
            self.told.set()

    async def made(self) -> Visit:
        async with asyncio.timeout(WITHIN_SECONDS):
            await self.handler(self.scope, self.receive, self.send)
        return self


@pytest.fixture
def handler() -> ThreadedHandler:
    return ThreadedHandler(2)


@pytest.mark.parametrize("body", [[b"whole"], [b"in ", b"three ", b"parts"]])
def test_a_body_reaches_the_view_in_however_many_pieces_it_comes(handler, body):
    visit = asyncio.run(Visit(handler, "/echo/", *body).made())

    assert (visit.status, visit.answer, visit.whole) == (200, b"".join(body), True)


def test_at_most_so_many_requests_are_worked_on_at_once_and_all_are_answered(handler):
    async def scenario():
        visits = [asyncio.ensure_future(Visit(handler, "/wait/").made()) for _ in range(5)]
        assert await asyncio.to_thread(seen.waiting.acquire, True, WITHIN_SECONDS)
        assert await asyncio.to_thread(seen.waiting.acquire, True, WITHIN_SECONDS)
        seen.go_on.set()
        return [visit.answer for visit in await asyncio.gather(*visits)]

    assert asyncio.run(scenario()) == [b"done"] * 5
    assert seen.most == 2


def test_that_the_process_lives_is_answered_while_every_thread_waits(handler):
    async def scenario():
        visits = [asyncio.ensure_future(Visit(handler, "/wait/").made()) for _ in range(2)]
        for _ in visits:
            assert await asyncio.to_thread(seen.waiting.acquire, True, WITHIN_SECONDS)
        answer = (await Visit(handler, "/healthz").made()).answer
        assert not any(visit.done() for visit in visits)
        seen.go_on.set()
        await asyncio.gather(*visits)
        return answer

    assert b"ok" in asyncio.run(scenario())


def test_what_breaks_a_view_is_answered_and_breaks_nothing_else(handler, settings):
    settings.DEBUG = False
    visits = [asyncio.run(Visit(handler, where).made()) for where in ("/broken/", "/echo/")]

    assert [visit.status for visit in visits] == [500, 200]


def test_a_request_is_over_when_it_is_answered_on_the_thread_that_worked_on_it(handler):
    """Its database connection goes back to the pool before the server waits for a slow reader."""
    threads = []
    at_the_end = lambda **_: threads.append(threading.current_thread().name)  # noqa: E731
    request_finished.connect(at_the_end)
    try:
        asyncio.run(Visit(handler, "/echo/").made())
    finally:
        request_finished.disconnect(at_the_end)

    assert [name.split("_")[0] for name in threads] == ["request"]


def test_what_is_read_bit_by_bit_is_read_on_a_thread(handler):
    visit = asyncio.run(Visit(handler, "/parts/").made())

    assert (visit.answer, visit.whole) == (b"one request", True)


def test_streams_speak_their_readers_language_hold_no_thread_and_end_when_the_reader_leaves(handler):
    async def scenario():
        readers = [Visit(handler, "/stream/", language=language) for language in ("it", "pt", "en")]  # more readers than threads
        visits = [asyncio.ensure_future(reader.made()) for reader in readers]
        async with asyncio.timeout(WITHIN_SECONDS):
            for reader in readers:
                await reader.told.wait()
        others = (await Visit(handler, "/echo/", b"still here").made()).answer
        readers[0].gone.set()
        await visits[0]
        assert seen.left.is_set()
        assert not visits[1].done()
        for reader in readers:
            reader.gone.set()
        await asyncio.gather(*visits)
        return [reader.answer for reader in readers], others

    assert asyncio.run(scenario()) == ([b"in it", b"in pt-br", b"in en"], b"still here")


@pytest.mark.django_db(transaction=True)
def test_the_live_pages_of_a_process_share_the_few_threads_that_read_for_them(handler):
    a_product()
    with testing.quiet():
        order = place()
    before, most = set(threading.enumerate()), 2 + streams.READERS + 1  # of requests, those that read, and the one that listens

    async def scenario():
        readers = [Visit(handler, f"/orders/{order}/stream/") for _ in range(3 * streams.READERS)]
        visits = [asyncio.ensure_future(reader.made()) for reader in readers]
        async with asyncio.timeout(WITHIN_SECONDS):
            while not all(b"event: order" in reader.answer for reader in readers):
                await asyncio.sleep(0.01)
            while len(set(threading.enumerate()) - before) > most:  # a thread that called the view may be ending
                await asyncio.sleep(0.01)
        for reader in readers:
            reader.gone.set()
        return await asyncio.gather(*visits)

    assert {reader.status for reader in asyncio.run(scenario())} == {200}


def test_anything_but_http_is_refused(handler):
    with pytest.raises(ValueError, match="websocket"):
        asyncio.run(handler({"type": "websocket"}, None, None))
