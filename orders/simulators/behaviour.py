"""How the services behave when nothing is broken: what real ones do and a simple simulation would not.

search_lag      seconds until the payment service's search shows a new payment; its listing and its look-up by id
                show it at once
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
    """The control request cannot be understood; the message says why."""


class Behaviour:
    """The present settings. Safe to use from any thread."""

    def __init__(self, *, search_lag: float = 60.0, refund_settles: float = 2.0, repeated_mail: str = "deliver") -> None:
        self._lock = threading.Lock()
        self._now: dict[str, Any] = {"search_lag": search_lag, "refund_settles": refund_settles, "repeated_mail": repeated_mail}

    @property
    def search_lag(self) -> float:
        """Seconds for which the search does not know a new payment."""
        return float(self._now["search_lag"])

    @property
    def refund_settles(self) -> float:
        """Seconds until a refund that is under way has its end."""
        return float(self._now["refund_settles"])

    @property
    def drops_repeated_mail(self) -> bool:
        """Whether a message that comes a second time is thrown away."""
        return bool(self._now["repeated_mail"] == "drop")

    def put(self, request: Any) -> None:
        """Take what a control request asks for. Raises BadBehaviour and changes nothing where it is wrong."""
        if not isinstance(request, Mapping):
            raise BadBehaviour("expected a JSON object")
        unknown = sorted(set(request) - set(self._now))
        if unknown:
            raise BadBehaviour(f"unknown field {unknown[0]!r}; known: {', '.join(self._now)}")
        wanted = {name: _mail(value) if name == "repeated_mail" else _seconds(name, value) for name, value in request.items()}
        with self._lock:
            self._now = {**self._now, **wanted}

    def describe(self) -> dict[str, Any]:
        """As JSON."""
        return dict(self._now)


def _seconds(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LONGEST:
        raise BadBehaviour(f"{name}: expected seconds from 0 to {LONGEST:.0f}")
    return float(value)


def _mail(value: Any) -> str:
    if value not in MAIL:
        raise BadBehaviour(f"repeated_mail: expected {' or '.join(MAIL)}")
    return str(value)
