"""How reconciliation asks the services: with retries, within a time limit, and with errors translated for the engine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TypeVar

from orders.agents.calls import retried
from orders.gateways import http
from orders.gateways.http import GatewayError, NoAnswer, NotSent
from supervision.ledger.reconciliation import CannotCompare

T = TypeVar("T")

LISTING_SECONDS = 4 * 3600.0  # a whole comparison; each call within it has the usual limit
SETTLING_SECONDS = 40.0
PAGE = 200


@contextmanager
def asking(seconds: float = LISTING_SECONDS) -> Iterator[None]:
    """Limits the time of the calls in this block. A gateway's error becomes CannotCompare."""
    try:
        with http.budget(time.monotonic() + seconds):
            yield
    except GatewayError as problem:
        raise CannotCompare(str(problem)) from problem


def patiently(call: Callable[[], T], *harmless: type[GatewayError]) -> T:
    """The result of a call that only reads. It is retried after NotSent, NoAnswer and the kinds in `harmless`."""
    return retried(call, on=(NotSent, NoAnswer, *harmless))


def batched(items: Iterable[T], size: int = PAGE) -> Iterator[list[T]]:
    """The items in lists of at most `size`."""
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch
