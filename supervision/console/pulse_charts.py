"""The pulse of the landing page: charts as SVG that the server draws, and the same figures as a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.utils.formats import number_format
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from supervision.insight.pulse import SPANS, Point, points
from supervision.runtime.humanize import age_in_words, moment

WIDTH, HEIGHT = 600, 80
SPAN_WORDS = {"hour": gettext_lazy("Hour"), "day": gettext_lazy("Day"), "week": gettext_lazy("Week")}
Value = Callable[[Point], float | None]


@dataclass
class Chart:
    """One chart. now: the figure of the whole span; top: the value at its upper edge. bars: x, y, width, height."""

    title: str
    now: str
    top: str
    bars: list[tuple[str, str, str, str]] = field(default_factory=list)
    lines: list[tuple[str, str]] = field(default_factory=list)


def seconds(value: float | None) -> str:
    """A duration in words; unknown ones are a dash."""
    if value is None:
        return "–"
    return _("%(n)s s") % {"n": number_format(value, 1)} if value < 100 else age_in_words(timedelta(seconds=value))


def percent(value: float | None) -> str:
    return "–" if value is None else f"{number_format(value, 1)} %"


def per_minute(value: float | None) -> str:
    return "–" if value is None else number_format(value, 1 if value < 100 else 0, force_grouping=True)


def pace(point: Point) -> float | None:
    """Orders Processed per minute."""
    return point.processed / point.minutes if point.minutes else None


def _bars(title: str, found: Sequence[Point], whole: Point, value: Value, words: Callable[[float | None], str]) -> Chart:
    values = [value(point) for point in found]
    top = max((number for number in values if number), default=0)
    chart, wide = Chart(title, words(value(whole)), words(top)), WIDTH / len(found)
    for place, number in enumerate(values):
        if number:
            high = max(1.0, HEIGHT * number / top)
            chart.bars.append(tuple(f"{size:.1f}" for size in (place * wide, HEIGHT - high, wide * 0.8, high)))  # type: ignore[arg-type]
    return chart


def _lines(title: str, now: str, found: Sequence[Point], series: Sequence[tuple[str, Value]]) -> Chart:
    top = max((number for _name, value in series for point in found if (number := value(point)) is not None), default=None)
    chart, top = Chart(title, now, seconds(top)), top or 1
    for name, value in series:
        parts, open_ = [], False
        for place, point in enumerate(found):
            number = value(point)
            if number is not None:
                x, y = (place + 0.5) * WIDTH / len(found), HEIGHT - 1 - (HEIGHT - 2) * number / top
                parts.append(f"{'L' if open_ else 'M'}{x:.1f} {y:.1f}" + ("" if open_ else "h1"))
            open_ = number is not None
        chart.lines.append((name, "".join(parts)))
    return chart


def pulse(said: str | None) -> dict[str, Any]:
    """The charts and the table of this span; the last hour unless it says otherwise."""
    span = said if said in SPANS else "hour"
    found, whole = points(span)
    spans = [(name, words, name == span) for name, words in SPAN_WORDS.items()]
    if whole is None:
        return {"spans": spans, "charts": [], "rows": []}
    both = _("p50 %(p50)s, p95 %(p95)s") % {"p50": seconds(whole.p50), "p95": seconds(whole.p95)}
    charts = [
        _bars(_("Orders Processed per minute"), found, whole, pace, per_minute),
        _bars(_("Orders stopped by an error"), found, whole, lambda point: point.rate, percent),
        _lines(_("Oldest waiting work"), seconds(whole.oldest), found, [("a", lambda point: point.oldest)]),
        _lines(_("Time to Processed"), both, found, [("a", lambda point: point.p50), ("b", lambda point: point.p95)]),
    ]
    rows = [
        (
            moment(point.at), point.processed, per_minute(pace(point)), point.stopped, percent(point.rate),
            seconds(point.oldest), seconds(point.p50), seconds(point.p95),
        )
        for point in reversed(found) if point.minutes
    ]  # fmt: skip
    return {"spans": spans, "charts": charts, "rows": rows, "first": moment(found[0].at), "last": moment(found[-1].at)}
