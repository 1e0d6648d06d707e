"""What the agents of remote services share: short retries of calls that certainly did nothing, within the budget.

A longer wait is the supervisor's business: an agent tries two or three times within its step and then says what it
knows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypedDict, TypeVar

import stamina

from orders.gateways import http
from orders.gateways.http import GatewayError, NoTime, NotSent, RefusesUs

T = TypeVar("T")


class Evidence(TypedDict):
    """What a problem says of the service itself, as the engine's failures take it."""

    retry_after: float | None
    unreachable: bool
    refuses_us: bool
    since: float | None


TRIES = 3
PATIENCE = 0.5  # the longest pause, in seconds, that is waited for inside a step; no less must be left to try again


def evidence(problem: GatewayError | None) -> Evidence:
    """By which the engine tells an outage from an order's own failure; call it in or right after the step's budget."""
    return Evidence(
        retry_after=getattr(problem, "retry_after", None),
        unreachable=isinstance(problem, NotSent) and not isinstance(problem, NoTime),
        refuses_us=isinstance(problem, RefusesUs),
        since=http.troubled_since(),
    )


def retried(call: Callable[[], T], *, on: tuple[type[GatewayError], ...] = (NotSent,)) -> T:
    """The call's result; failures of these kinds, which are known to be harmless to repeat, are tried again."""

    def again(problem: Exception) -> bool:
        wish = getattr(problem, "retry_after", None)
        return isinstance(problem, on) and (wish is None or wish <= PATIENCE) and http.remaining() > PATIENCE

    left = http.remaining()
    if left <= 0:
        return call()  # fails at once, in the gateway's words
    for attempt in stamina.retry_context(on=again, attempts=TRIES, timeout=left, wait_initial=0.05, wait_max=PATIENCE, wait_jitter=0.1):
        with attempt:
            return call()
    raise AssertionError("stamina ends with a result or with the last error")
