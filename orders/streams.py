"""How many live streams one process holds: in all, of one address, and on one order. Pages and the API count together.

A stream holds no thread, but memory and a place among those that are woken. So one visitor gets few of them; a page without a
stream asks again by itself.
"""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from django.conf import settings
from django.http import StreamingHttpResponse

from orders.api.throttling import address_of

MOST_PER_PROCESS = 500  # the setting LIVE_STREAMS_PER_PROCESS overrides it
MOST_PER_ORDER = 20

_open: Counter[str] = Counter()
_lock = threading.Lock()


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
