"""The intervals at which beat sends tasks, as the console keeps them: so many periods, and which.

Operators edit them. One of 1,000,000,000 days is longer than Python can count, and would end beat. One of a microsecond would make
beat send messages without a rest. The console refuses both, and beat bounds what other programs have written.
"""

from __future__ import annotations

SECONDS = {"microseconds": 1e-6, "seconds": 1.0, "minutes": 60.0, "hours": 3600.0, "days": 86400.0}
SHORTEST = (100_000, "microseconds")
LONGEST = (366, "days")


def seconds_of(every: int, period: str) -> float:
    """So many of these periods in seconds, also where Python's `timedelta` cannot count them."""
    return every * SECONDS[period]


def bounded(every: int, period: str) -> tuple[int, str]:
    """This interval, or the nearest at which beat sends a task: a tenth of a second to 366 days."""
    if seconds_of(every, period) < seconds_of(*SHORTEST):
        return SHORTEST
    return LONGEST if seconds_of(every, period) > seconds_of(*LONGEST) else (every, period)
