"""The figures of the last hour, day or week from the minutes that `incidents.pulse` has written, and the trend of each incident."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from supervision.incidents.pulse import BASE, FACTOR
from supervision.postgres import db

SPANS = {"hour": (3600, 60), "day": (86_400, 1800), "week": (604_800, 10_800)}  # seconds: all of it, and one point

_POINTS = """
SELECT b.at, coalesce(sum(p.processed), 0)::int, coalesce(sum(p.cancelled), 0)::int, coalesce(sum(p.stopped), 0)::int,
       max(p.oldest_seconds), count(p.minute)::int
  FROM (SELECT date_bin(%(step)s * interval '1 s', now(), 'epoch') AS last) n
 CROSS JOIN LATERAL generate_series(n.last - (%(span)s - %(step)s) * interval '1 s', n.last, %(step)s * interval '1 s') b(at)
  LEFT JOIN supervision_pulse p ON p.minute >= b.at AND p.minute < b.at + %(step)s * interval '1 s'
 GROUP BY b.at ORDER BY b.at
"""
_TIMES = """
SELECT date_bin(%(step)s * interval '1 s', p.minute, 'epoch') AS at, c.class, sum(c.n)::int
  FROM supervision_pulse p CROSS JOIN LATERAL unnest(p.classes, p.counts) c(class, n)
 WHERE p.minute >= date_bin(%(step)s * interval '1 s', now(), 'epoch') - (%(span)s - %(step)s) * interval '1 s'
 GROUP BY 1, 2
"""
_BEFORE = """
SELECT incidents FROM supervision_pulse
 WHERE minute <= now() - interval '15 minutes' AND minute > now() - interval '20 minutes' AND incidents IS NOT NULL
 ORDER BY minute DESC LIMIT 1
"""


@dataclass(frozen=True)
class Point:
    """One point of the charts. minutes: how many of its minutes are written; oldest, p50, p95: seconds, None: unknown."""

    at: datetime
    processed: int
    cancelled: int
    stopped: int
    oldest: float | None
    minutes: int
    p50: float | None
    p95: float | None

    @property
    def rate(self) -> float | None:
        """The share of orders that an error stopped, in percent."""
        seen = self.processed + self.cancelled + self.stopped
        return 100 * self.stopped / seen if seen else None


def points(span: str) -> tuple[list[Point], Point | None]:
    """The points of this span, oldest first, and one for all of it; None if no minute of it is written."""
    seconds, step = SPANS[span]
    params = {"span": seconds, "step": step}
    times: dict[datetime, Counter[int]] = {}
    for at, number, count in db.fetch(_TIMES, params):
        times.setdefault(at, Counter())[number] += count
    found = []
    for at, processed, cancelled, stopped, oldest, minutes in db.fetch(_POINTS, params):
        found.append(Point(at, processed, cancelled, stopped, oldest, minutes, *_percentiles(times.get(at, Counter()))))
    written = [point for point in found if point.minutes]
    if not written:
        return found, None
    together = sum(times.values(), Counter())
    whole = Point(
        written[0].at,
        sum(point.processed for point in written),
        sum(point.cancelled for point in written),
        sum(point.stopped for point in written),
        max((point.oldest for point in written if point.oldest is not None), default=None),
        sum(point.minutes for point in written),
        *_percentiles(together),
    )
    return found, whole


def _percentiles(classes: Mapping[int, int]) -> tuple[float | None, float | None]:
    """The bounds of the classes in which the median and the 95th percentile are: at most a quarter too high."""
    return _percentile(classes, 0.5), _percentile(classes, 0.95)


def _percentile(classes: Mapping[int, int], share: float) -> float | None:
    wanted, seen = share * sum(classes.values()), 0
    for number in sorted(classes):
        seen += classes[number]
        if seen >= wanted:
            return float(BASE * FACTOR**number)
    return None


def held_before() -> Mapping[str, int] | None:
    """How many orders each open incident held 15 minutes ago, by its number; None if that was not written down."""
    rows = db.fetch(_BEFORE)
    return rows[0][0] if rows else None
