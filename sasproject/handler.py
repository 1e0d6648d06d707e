"""The ASGI handler of the web role: views run on a few permanent threads, streams on the event loop.

Django's own ASGI handler makes a thread for every request, and switches between it and the event loop for most of the
middleware. That costs as much as placing an order (docs/adr/0007-web-threads.md has the figures). Here a request switches
once: the event loop reads its body, all of Django runs on one thread, and the event loop sends the response. The event
loop also sends streaming responses, so that a page that follows an order holds no thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from io import BytesIO
from typing import IO, Any

from asgiref.sync import ThreadSensitiveContext
from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler, get_script_prefix
from django.core.signals import request_started
from django.db import close_old_connections
from django.http import FileResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.urls import set_script_prefix
from django.utils.translation import get_language, override

# Each probe has its own thread, so that it answers even while all others wait for a database that is down.
PROBES = ("/healthz", "/readyz")

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]


class ThreadedHandler(ASGIHandler):
    """An ASGI application: the project's synchronous middleware and views, at most `threads` requests at a time."""

    def __init__(self, threads: int) -> None:
        self.load_middleware()  # the synchronous way, unlike the base class
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="request")
        self._spare = {probe: ThreadPoolExecutor(1, thread_name_prefix="probe") for probe in PROBES}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # type: ignore[override]
        """Answer one request."""
        if scope["type"] != "http":
            raise ValueError(f"This serves HTTP, not {scope['type']}.")
        try:
            body = await self.read_body(receive)
        except RequestAborted:
            return
        threads = self._spare.get(scope["path"].rstrip("/"), self._threads)
        response, language = await asyncio.get_running_loop().run_in_executor(threads, self.answer, scope, body)
        if isinstance(response, StreamingHttpResponse):
            with override(language):
                await self._tell(response, receive, send)
        else:
            await self.send_response(response, send)

    async def read_body(self, receive: Receive) -> IO[bytes]:  # type: ignore[override]
        """The request's body. A body that comes in one piece, as nearly all do, needs no temporary file."""
        message = await receive()
        if message["type"] == "http.request" and not message.get("more_body"):
            return BytesIO(message.get("body", b""))
        pushed_back = [message]

        async def again() -> dict[str, Any]:
            return pushed_back.pop() if pushed_back else await receive()

        body: IO[bytes] = await super().read_body(again)
        return body

    def answer(self, scope: Scope, body: IO[bytes]) -> tuple[HttpResponseBase, str | None]:
        """Run Django on this thread; returns the response and its language. A response that is no stream is closed here."""
        with closing(body):
            set_script_prefix(get_script_prefix(scope))
            request_started.send(sender=self.__class__, scope=scope)
            request, refusal = self.create_request(scope, body)
            response = refusal if request is None else self.get_response(request)
            assert response is not None  # noqa: S101 - create_request returns one of the two
            response._handler_class = self.__class__  # type: ignore[attr-defined]
            if response.streaming:
                close_old_connections()  # the stream queries on other threads
            else:
                response.close()
            return response, get_language()

    async def _tell(self, response: StreamingHttpResponse, receive: Receive, send: Send) -> None:
        """Send a stream until it ends or the client disconnects."""
        if isinstance(response, FileResponse):
            response.block_size = self.chunk_size
        if not response.is_async:
            response.streaming_content = self._parts(iter(response.streaming_content))  # type: ignore[arg-type]
        async with ThreadSensitiveContext():
            telling = asyncio.ensure_future(self.send_response(response, send))
            leaving = asyncio.ensure_future(self.listen_for_disconnect(receive))
            try:
                await asyncio.wait({telling, leaving}, return_when=asyncio.FIRST_COMPLETED)
                if telling.done():
                    telling.result()
            finally:
                telling.cancel()
                leaving.cancel()
                await asyncio.gather(telling, leaving, return_exceptions=True)
                await self._on_a_thread(response.close)

    async def _parts(self, parts: Iterator[bytes]) -> AsyncIterator[bytes]:
        while (part := await self._on_a_thread(next, parts, None)) is not None:
            yield part

    async def _on_a_thread(self, function: Callable[..., Any], *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *args)
