"""Shared by the agents of remote services: short retries, within the step's budget, of calls that certainly had no effect.

Longer waits are the supervisor's task. An agent tries two or three times within its step and then reports the result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypedDict, TypeVar

import stamina

from orders.gateways import http
from orders.gateways.http import GatewayError, NoTime, NotSent, RefusesUs

T = TypeVar("T")


class Evidence(TypedDict):
    """What an error tells about the service itself: keyword arguments of the engine's failures."""

    retry_after: float | None
    unreachable: bool
    refuses_us: bool
    since: float | None


TRIES = 3
PATIENCE = 0.5  # seconds: the longest pause between tries; an agent tries again only while more time than this is left


def evidence(problem: GatewayError | None) -> Evidence:
    """The facts by which the engine tells an outage from the failure of one order. Call it in or right after the budget."""
    return Evidence(
        retry_after=getattr(problem, "retry_after", None),
        unreachable=isinstance(problem, NotSent) and not isinstance(problem, NoTime),
        refuses_us=isinstance(problem, RefusesUs),
        since=http.troubled_since(),
    )


def retried(call: Callable[[], T], *, on: tuple[type[GatewayError], ...] = (NotSent,)) -> T:
    """The call's result. It is retried after failures of the kinds in `on`: repeating it after those is known to be harmless."""

    def again(problem: Exception) -> bool:
        wish = getattr(problem, "retry_after", None)
        return isinstance(problem, on) and (wish is None or wish <= PATIENCE) and http.remaining() > PATIENCE

    left = http.remaining()
    if left <= 0:
        return call()  # the gateway raises its own error at once
    for attempt in stamina.retry_context(on=again, attempts=TRIES, timeout=left, wait_initial=0.05, wait_max=PATIENCE, wait_jitter=0.1):
        with attempt:
            return call()
    raise AssertionError("stamina ends with a result or with the last error")
