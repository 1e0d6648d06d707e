"""How reconciliation asks the services: patiently, within a time limit, and in the engine's words where that fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TypeVar

from orders.agents.calls import retried
from orders.gateways import http
from orders.gateways.http import GatewayError, NoAnswer, NotSent
from supervision.reconciliation import CannotCompare

T = TypeVar("T")

LISTING_SECONDS = 4 * 3600.0  # a whole comparison; each call within it has the usual limit
SETTLING_SECONDS = 40.0
PAGE = 200


@contextmanager
def asking(seconds: float = LISTING_SECONDS) -> Iterator[None]:
    """Calls within this block end in time. What a service fails to tell is CannotCompare."""
    try:
        with http.budget(time.monotonic() + seconds):
            yield
    except GatewayError as problem:
        raise CannotCompare(str(problem)) from problem


def patiently(call: Callable[[], T], *harmless: type[GatewayError]) -> T:
    """A call that only reads, tried again where that may help."""
    return retried(call, on=(NotSent, NoAnswer, *harmless))


def batched(items: Iterable[T], size: int = PAGE) -> Iterator[list[T]]:
    """Some at a time."""
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch
