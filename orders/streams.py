"""How many live streams one process holds: in all, of one address, and on one order. Pages and the API count together.

A stream holds no thread, but memory and a place among those that are woken. So one visitor gets few of them; a page without a
stream asks again by itself.
"""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import Any, ParamSpec, TypeVar

from asgiref.sync import sync_to_async
from django.conf import settings
from django.http import StreamingHttpResponse

from orders.api.throttling import address_of

MOST_PER_PROCESS = 500  # the setting LIVE_STREAMS_PER_PROCESS overrides it
MOST_PER_ORDER = 20
READERS = 4  # threads that read for all streams of a process: its pool has a connection for each (`DATABASE_POOL_SIZE`)

_open: Counter[str] = Counter()
_lock = threading.Lock()
_readers = ThreadPoolExecutor(READERS, thread_name_prefix="stream")
P = ParamSpec("P")
T = TypeVar("T")


class Place:
    """One stream's place; it is given back once, however often `leave` is called."""

    def __init__(self, buckets: list[str]) -> None:
        self._buckets = buckets

    def leave(self) -> None:
        """Give the place back."""
        with _lock:
            for bucket in self._buckets:
                _open[bucket] -= 1
                if _open[bucket] <= 0:
                    del _open[bucket]
            self._buckets = []


def take(request: Any, public_id: str) -> Place | None:
    """A place for a stream of this order, or None if the process, the address or the order has all of its places taken."""
    most = {
        "": getattr(settings, "LIVE_STREAMS_PER_PROCESS", MOST_PER_PROCESS),
        f"address:{address_of(request)}": settings.LIVE_STREAMS_PER_ADDRESS,
        f"order:{public_id}": MOST_PER_ORDER,
    }
    with _lock:
        if any(_open[bucket] >= limit for bucket, limit in most.items()):
            return None
        _open.update(list(most))
    return Place(list(most))


def held(place: Place, parts: AsyncIterator[str], **kwargs: Any) -> StreamingHttpResponse:
    """A response that gives its place back at its end, also if it is never sent."""

    async def told() -> AsyncIterator[str]:
        try:
            async with aclosing(parts):  # type: ignore[type-var]  # every generator has it
                async for part in parts:
                    yield part
        finally:
            place.leave()

    response = StreamingHttpResponse(told(), **kwargs)
    weakref.finalize(response, place.leave)
    return response


def on_a_reader(function: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
    """The function as a coroutine, called on one of the few threads that read for all streams; a stream keeps none between two reads.

    Django's own way would start a thread for each open stream, and all of them would read at once when all are woken.
    """
    return sync_to_async(function, thread_sensitive=False, executor=_readers)
