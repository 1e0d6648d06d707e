"""How the services behave without faults: properties of the real services that a simple simulation would not have.

search_lag      seconds until the payment service's search shows a new payment; its listing and its look-up by id
                show it immediately
refund_settles  seconds until a refund that is still under way succeeds or fails
repeated_mail   `deliver`: a message whose Message-ID was delivered before is delivered again, as real mail servers
                do; `drop`: it is accepted and thrown away
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

LONGEST = 86_400.0
MAIL = ("deliver", "drop")


class BadBehaviour(Exception):
    """The control request is not valid; the message says why."""


class Behaviour:
    """The present settings. Safe to use from any thread."""

    def __init__(self, *, search_lag: float = 60.0, refund_settles: float = 2.0, repeated_mail: str = "deliver") -> None:
        self._lock = threading.Lock()
        self._now: dict[str, Any] = {"search_lag": search_lag, "refund_settles": refund_settles, "repeated_mail": repeated_mail}

    @property
    def search_lag(self) -> float:
        """Seconds until the search shows a new payment."""
        return float(self._now["search_lag"])

    @property
    def refund_settles(self) -> float:
        """Seconds until a pending refund succeeds or fails."""
        return float(self._now["refund_settles"])

    @property
    def drops_repeated_mail(self) -> bool:
        """Whether a message is dropped if its Message-ID was delivered before."""
        return bool(self._now["repeated_mail"] == "drop")

    def put(self, request: Any) -> None:
        """Apply a control request. If it is not valid, change nothing and raise BadBehaviour."""
        if not isinstance(request, Mapping):
            raise BadBehaviour("expected a JSON object")
        unknown = sorted(set(request) - set(self._now))
        if unknown:
            raise BadBehaviour(f"unknown field {unknown[0]!r}; known: {', '.join(self._now)}")
        wanted = {name: _mail(value) if name == "repeated_mail" else _seconds(name, value) for name, value in request.items()}
        with self._lock:
            self._now = {**self._now, **wanted}

    def describe(self) -> dict[str, Any]:
        """The settings, for JSON."""
        return dict(self._now)


def _seconds(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LONGEST:
        raise BadBehaviour(f"{name}: expected seconds from 0 to {LONGEST:.0f}")
    return float(value)


def _mail(value: Any) -> str:
    if value not in MAIL:
        raise BadBehaviour(f"repeated_mail: expected {' or '.join(MAIL)}")
    return str(value)
