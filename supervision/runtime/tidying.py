"""Deletes expired rows every hour. Each registered function deletes one bounded batch, and is called until it has no more.

The leader of the supervisors calls `turn` from its sweep, so a turn ends after some seconds, and the next sweeps go on with the rest.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable

from supervision.postgres import db

log = logging.getLogger(__name__)

TURN_SECONDS = 2.0
Tidier = Callable[[], bool]
_TIDIERS: dict[str, Tidier] = {}


def tidier(name: str) -> Callable[[Tidier], Tidier]:
    """Register a function that deletes at most one batch of rows, found through an index, and returns whether there may be more."""

    def register(function: Tidier) -> Tidier:
        _TIDIERS[name] = function
        return function

    return register


def turn(seconds: float = TURN_SECONDS) -> bool:
    """Delete for so long, one batch of each in turn. True if there is more to do. One that fails keeps no other from its work."""
    end, waiting = time.monotonic() + seconds, deque(_TIDIERS)
    while waiting:
        name = waiting.popleft()
        tidy = _TIDIERS.pop(name)
        _TIDIERS[name] = tidy  # the next turn begins with the others
        if _more(name, tidy):
            waiting.append(name)
        if time.monotonic() >= end:
            return bool(waiting)
    return False


def _more(name: str, tidy: Tidier) -> bool:
    try:
        return tidy()
    except Exception as error:
        if db.passes(error):
            raise
        log.exception("%s could not be tidied; the next hour tries again", name)
        return False
