"""Injected faults, and the meter that counts a service's calls.

Each service has one fault at a time. It may also have any number of faults that affect only one `order`, or at the
carrier one `postal_code`; these take precedence. The modes:

    ok                    nothing (with `latency_ms`: every call takes that much longer)
    error_before          payment 500, carrier 503 with Retry-After, mail 451; nothing was done. `status` chooses another code
    error_after_effect    the call has its effect, the answer is an error (payment and carrier 500, mail 451)
    timeout_after_effect  the call has its effect, no answer comes; the connection is held for `latency_ms` (60 s) and closed
    reset_after_effect    the call has its effect, the connection is reset instead of an answer
    decline               payment 402 card_declined, carrier 422 address_not_serviceable, mail 550; nothing was done
    slow                  every call takes `latency_ms` (2000) longer
    refund_fails          payment: a refund is under way for `latency_ms` (refund_settles) and then fails
    down                  HTTP connections are reset unanswered, SMTP greets with 421

The three `_after_effect` modes do not affect calls without a new effect: reads, refusals and replays of a stored answer.
A repeated mail counts as new if it is delivered.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from orders.simulators.ledger import SERVICES


class Mode(StrEnum):
    """How a service behaves."""

    OK = "ok"
    ERROR_BEFORE = "error_before"
    ERROR_AFTER_EFFECT = "error_after_effect"
    TIMEOUT_AFTER_EFFECT = "timeout_after_effect"
    RESET_AFTER_EFFECT = "reset_after_effect"
    DECLINE = "decline"
    SLOW = "slow"
    REFUND_FAILS = "refund_fails"
    DOWN = "down"


ALL = "all"
AFTER_EFFECT = frozenset({Mode.ERROR_AFTER_EFFECT, Mode.TIMEOUT_AFTER_EFFECT, Mode.RESET_AFTER_EFFECT})
STATUSES = (401, 403, 429, 500, 502, 503, 504)
MAX_LATENCY_MS = 600_000
NARROW = {"order": ("payment", "carrier"), "postal_code": ("carrier",)}  # the services whose calls have the field
_FIELDS = ("service", "mode", "probability", "latency_ms", "until", "status", *NARROW)


class BadFault(Exception):
    """The control request is not valid; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault of a service. `until` is the time when it ends by itself, or None.

    only: the field and the value of the calls that it affects, or None for every call.
    """

    mode: Mode = Mode.OK
    probability: float = 1.0
    latency_ms: float | None = None
    until: datetime | None = None
    status: int | None = None
    only: tuple[str, str] | None = None

    @property
    def delay(self) -> float:
        """Seconds to wait before the work."""
        if self.mode in (Mode.TIMEOUT_AFTER_EFFECT, Mode.REFUND_FAILS):
            return 0.0
        return (2000.0 if self.latency_ms is None and self.mode is Mode.SLOW else self.latency_ms or 0.0) / 1000

    @property
    def is_over(self) -> bool:
        """Whether its time has passed."""
        return self.until is not None and self.until <= datetime.now(UTC)

    @property
    def hold(self) -> float:
        """Seconds for which a connection without an answer is held."""
        return (60_000.0 if self.latency_ms is None else self.latency_ms) / 1000

    def describe(self) -> dict[str, Any]:
        """The fault, for JSON."""
        until = self.until and self.until.isoformat().replace("+00:00", "Z")
        return {
            "mode": self.mode.value,
            "probability": self.probability,
            "latency_ms": self.latency_ms,
            "until": until,
            "status": self.status,
            **({self.only[0]: self.only[1]} if self.only else {}),
        }


NONE = Fault()
About = Mapping[str, str]  # the fields of NARROW that a call has
NOTHING: About = {}


class Faults:
    """The faults in force. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: dict[str, Fault] = {}
        self._narrow: dict[str, dict[tuple[str, str], Fault]] = {}

    def put(self, request: Any) -> None:
        """Set the fault of a control request. If the request is not valid, change nothing and raise BadFault."""
        services, fault = _read(request)
        with self._lock:
            for service in services:
                if fault.only is None:
                    self._faults[service] = fault
                else:
                    self._narrow.setdefault(service, {})[fault.only] = fault

    def clear(self, service: str = ALL) -> None:
        """Remove the faults of one service, or of all."""
        if service not in (*SERVICES, ALL):
            raise BadFault(f"service: expected {_list((*SERVICES, ALL))}")
        with self._lock:
            for name in SERVICES if service == ALL else (service,):
                self._faults.pop(name, None)
                self._narrow.pop(name, None)

    def are_narrow(self, service: str) -> bool:
        """Whether the service has faults that affect only some calls."""
        return bool(self._narrow.get(service))

    def now(self, service: str, about: About = NOTHING) -> Fault:
        """The active fault for a call about this, without regard to its probability."""
        with self._lock:
            narrow = self._narrow.get(service, {})
            for only in [only for only, fault in narrow.items() if fault.is_over]:
                del narrow[only]
            for only in about.items():
                if only in narrow:
                    return narrow[only]
            fault = self._faults.get(service, NONE)
            if fault.is_over:
                del self._faults[service]
                return NONE
        return fault

    def roll(self, service: str, about: About = NOTHING) -> Fault:
        """The fault of one call: the active one with its probability, or otherwise none."""
        fault = self.now(service, about)
        if fault.probability < 1 and random.random() >= fault.probability:  # noqa: S311 - dice, not secrets
            return NONE
        return fault

    def describe(self) -> dict[str, Any]:
        """Every service's faults, for JSON; `narrow`: the faults of single orders and postal codes."""
        told = {service: self.now(service).describe() for service in SERVICES}
        return told | {service: {**told[service], "narrow": [one.describe() for one in of.values()]} for service, of in self._each()}

    def _each(self) -> list[tuple[str, dict[tuple[str, str], Fault]]]:
        with self._lock:
            return [(service, dict(of)) for service, of in self._narrow.items() if of]


def _read(request: Any) -> tuple[tuple[str, ...], Fault]:
    if not isinstance(request, Mapping):
        raise BadFault("expected a JSON object")
    unknown = sorted(set(request) - set(_FIELDS))
    if unknown:
        raise BadFault(f"unknown field {unknown[0]!r}; known: {_list(_FIELDS)}")
    service = request.get("service")
    if service not in (*SERVICES, ALL):
        raise BadFault(f"service: expected {_list((*SERVICES, ALL))}")
    if request.get("mode") not in list(Mode):
        raise BadFault(f"mode: expected {_list(list(Mode))}")
    status = request.get("status")
    if status is not None and status not in STATUSES:
        raise BadFault(f"status: expected {_list([str(known) for known in STATUSES])}")
    fault = Fault(mode=Mode(request["mode"]), until=_moment(request.get("until")), status=status)
    if (only := _only(request)) is not None:
        fault = replace(fault, only=only)
    if request.get("probability") is not None:
        fault = replace(fault, probability=_number(request["probability"], "probability", 1))
    if request.get("latency_ms") is not None:
        fault = replace(fault, latency_ms=_number(request["latency_ms"], "latency_ms", MAX_LATENCY_MS))
    return SERVICES if service == ALL else (service,), fault


def _only(request: Mapping[str, Any]) -> tuple[str, str] | None:
    given = [name for name in NARROW if request.get(name) is not None]
    if not given:
        return None
    name = given[0]
    if len(given) > 1 or request["service"] not in NARROW[name]:
        raise BadFault(f"{name}: expected alone, and with the service {' or '.join(NARROW[name])}")
    if not isinstance(request[name], str):
        raise BadFault(f"{name}: expected a string")
    return name, request[name]


def _number(value: Any, name: str, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise BadFault(f"{name}: expected a number from 0 to {most}")
    return float(value)


def _moment(value: Any) -> datetime | None:
    """`until`: an ISO 8601 time, seconds since 1970, or (below a thousand million) seconds from now."""
    if value is None:
        return None
    try:
        if isinstance(value, str):
            moment = datetime.fromisoformat(value)
            return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
            now = datetime.now(UTC)
            return now + timedelta(seconds=value) if value < 1e9 else datetime.fromtimestamp(value, UTC)
    except (ValueError, OverflowError, OSError):
        pass
    raise BadFault("until: expected an ISO 8601 time, seconds since 1970, or seconds from now")


def _list(words: Any) -> str:
    return ", ".join(words)


class Meter:
    """Counts per service: all calls, the most calls in flight at once, and the most calls that began within one second."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.reset()

    def reset(self) -> None:
        """Reset the counts, except the number of calls in flight."""
        with self._lock:
            flying = getattr(self, "_flying", dict.fromkeys(SERVICES, 0))
            self._flying = flying
            self._most = dict(flying)
            self._calls = dict.fromkeys(SERVICES, 0)
            self._busiest = dict.fromkeys(SERVICES, 0)
            self._lately: dict[str, deque[float]] = {service: deque() for service in SERVICES}

    @contextmanager
    def call(self, service: str) -> Iterator[int]:
        """Count one call while it is in flight; gives the number of calls in flight, this one included."""
        with self._lock:
            self._calls[service] += 1
            lately, now = self._lately[service], time.monotonic()
            lately.append(now)
            while lately[0] <= now - 1:
                lately.popleft()
            self._busiest[service] = max(self._busiest[service], len(lately))
            self._flying[service] += 1
            flying = self._flying[service]
            self._most[service] = max(self._most[service], flying)
        try:
            yield flying
        finally:
            with self._lock:
                self._flying[service] -= 1

    def describe(self) -> dict[str, dict[str, int]]:
        """Per service: calls, in_flight, max_in_flight, max_per_second (of any interval of one second)."""
        with self._lock:
            return {
                service: {
                    "calls": self._calls[service],
                    "in_flight": self._flying[service],
                    "max_in_flight": self._most[service],
                    "max_per_second": self._busiest[service],
                }
                for service in SERVICES
            }
