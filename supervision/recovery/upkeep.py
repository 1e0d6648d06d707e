"""What the leading supervisor does after its sweeps, beside recovery: it links the history, and now and then deletes what is over."""

from __future__ import annotations

import time

from supervision.history import linking
from supervision.runtime import periodic, tidying

TIDY_SECONDS = 3600.0
TIDY_ON_SECONDS = 30.0  # while there is more to delete
_tidied = float("-inf")


def turn() -> None:
    """Link what has ended, for a second at most; once an hour, or every half minute while there is more, delete what is over."""
    periodic.call_each([linking.turn, _tidy])


def _tidy() -> None:
    global _tidied
    if time.monotonic() - _tidied > TIDY_SECONDS:
        _tidied = time.monotonic() - (TIDY_SECONDS - TIDY_ON_SECONDS if tidying.turn() else 0.0)
