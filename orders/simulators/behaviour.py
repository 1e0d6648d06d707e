"""How the services behave without faults: properties of the real services that a simple simulation would not have.

search_lag      seconds until the payment service's search shows a new payment; its listing and its look-up by id
                show it immediately
refund_settles  seconds until a refund that is still under way succeeds or fails
reserved_for    seconds until a reserved amount that was not captured lapses: seven days, as for most cards
repeated_mail   `deliver`: a message whose Message-ID was delivered before is delivered again, as real mail servers
                do; `drop`: it is accepted and thrown away
webhooks_late     seconds within which an event is told, at a random moment: events overtake each other
webhooks_repeated how often an event is told again although it was answered
webhooks_lost     the probability, from 0 to 1, that an event is never told
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

LONGEST = 30 * 86_400.0
WEEK = 7 * 86_400.0
MOST_REPEATED = 20
MAIL = ("deliver", "drop")


class BadBehaviour(Exception):
    """The control request is not valid; the message says why."""


class Behaviour:
    """The present settings. Safe to use from any thread."""

    def __init__(self, *, search_lag: float = 60.0, refund_settles: float = 2.0, repeated_mail: str = "deliver") -> None:
        self._lock = threading.Lock()
        self._now: dict[str, Any] = {
            "search_lag": search_lag,
            "refund_settles": refund_settles,
            "reserved_for": WEEK,
            "repeated_mail": repeated_mail,
            "webhooks_late": 0.0,
            "webhooks_repeated": 0,
            "webhooks_lost": 0.0,
        }

    @property
    def search_lag(self) -> float:
        """Seconds until the search shows a new payment."""
        return float(self._now["search_lag"])

    @property
    def refund_settles(self) -> float:
        """Seconds until a pending refund succeeds or fails."""
        return float(self._now["refund_settles"])

    @property
    def reserved_for(self) -> float:
        """Seconds until a reserved amount lapses."""
        return float(self._now["reserved_for"])

    @property
    def drops_repeated_mail(self) -> bool:
        """Whether a message is dropped if its Message-ID was delivered before."""
        return bool(self._now["repeated_mail"] == "drop")

    @property
    def webhooks_late(self) -> float:
        """Seconds within which an event is told."""
        return float(self._now["webhooks_late"])

    @property
    def webhooks_repeated(self) -> int:
        """How often an event is told again."""
        return int(self._now["webhooks_repeated"])

    @property
    def webhooks_lost(self) -> float:
        """The probability that an event is never told."""
        return float(self._now["webhooks_lost"])

    def put(self, request: Any) -> None:
        """Apply a control request. If it is not valid, change nothing and raise BadBehaviour."""
        if not isinstance(request, Mapping):
            raise BadBehaviour("expected a JSON object")
        unknown = sorted(set(request) - set(self._now))
        if unknown:
            raise BadBehaviour(f"unknown field {unknown[0]!r}; known: {', '.join(self._now)}")
        wanted = {name: _CHECKS.get(name, _seconds)(name, value) for name, value in request.items()}
        with self._lock:
            self._now = {**self._now, **wanted}

    def describe(self) -> dict[str, Any]:
        """The settings, for JSON."""
        return dict(self._now)


def _seconds(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LONGEST:
        raise BadBehaviour(f"{name}: expected seconds from 0 to {LONGEST:.0f}")
    return float(value)


def _mail(name: str, value: Any) -> str:
    if value not in MAIL:
        raise BadBehaviour(f"{name}: expected {' or '.join(MAIL)}")
    return str(value)


def _times(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_REPEATED:
        raise BadBehaviour(f"{name}: expected a whole number from 0 to {MOST_REPEATED}")
    return value


def _share(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise BadBehaviour(f"{name}: expected a number from 0 to 1")
    return float(value)


_CHECKS: Mapping[str, Callable[[str, Any], Any]] = {"repeated_mail": _mail, "webhooks_repeated": _times, "webhooks_lost": _share}
