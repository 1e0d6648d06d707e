"""How reconciliation asks the services: with retries, within a time limit, and with errors translated for the engine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from orders.agents.calls import retried
from orders.gateways import http
from orders.gateways.http import GatewayError, NoAnswer, NotSent
from orders.gateways.payment import Broken, KeyConflict, Rejected, Unavailable, WrongState
from supervision.ledger.reconciliation import CannotCompare, CannotSettle

T = TypeVar("T")

LISTING_SECONDS = 4 * 3600.0  # a whole comparison; each call within it has the usual limit
SETTLING_SECONDS = 40.0


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


def once(keys: list[str], call: Callable[[str], None], done: Callable[[], bool]) -> None:
    """Call under one key after the other until `done()` is true, which is checked after each call. Raises CannotSettle."""
    problem: GatewayError | None = None
    while keys:
        key = keys.pop(0)
        try:
            retried(partial(call, key), on=(NotSent, Unavailable))
        except (NoAnswer, Broken, KeyConflict, WrongState, Rejected) as unsure:
            problem = unsure
            if not isinstance(unsure, NoAnswer):
                keys = [one for one in keys if one != key]
        else:
            # A replayed answer may be older than the present state, so only `done()` decides.
            if done():
                return
            keys = [one for one in keys if one != key]
            continue
        if done():
            return
    raise CannotSettle(f"the payment service {problem or 'accepted the call, but its list does not show the result'}")
