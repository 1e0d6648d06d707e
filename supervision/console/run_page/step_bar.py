"""The step bar of a run's page: its steps as a path with its branches, and their times as bars in a table.

The server draws it: without JavaScript, and without inline styles. Each bar's figures are in the table's cells as text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from supervision.console.run_page.durations import STOPPED, WAITED, WORKED, Span, StepTimes, times_of
from supervision.insight.queries import TimelineEntry
from supervision.models import Exchange, Run, StepState
from supervision.states import Direction

WIDTH, LEAST = 1000.0, 3.0


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One part of a step's bar: its kind, and its place on a scale of 1000."""

    kind: str
    x: str
    width: str


@dataclass(frozen=True, kw_only=True)
class Row:
    """One step with its figures. attempts: each with how long it took. said: what they said to services."""

    step: StepState
    waited: timedelta | None
    worked: timedelta | None
    stopped: timedelta | None
    began: datetime | None
    ended: datetime | None
    bars: Sequence[Bar]
    attempts: Sequence[tuple[Span, timedelta]]
    said: Sequence[Exchange] = ()


@dataclass
class StepBar:
    """The whole drawing. stages: the path, each stage with the steps that may be worked on at the same time."""

    rows: list[Row] = field(default_factory=list)
    stages: list[list[Row]] = field(default_factory=list)
    undone: list[Row] = field(default_factory=list)
    began: datetime | None = None
    ended: datetime | None = None
    took: timedelta | None = None


def step_bar(
    run: Run, steps: Sequence[StepState], history: Sequence[TimelineEntry], now: datetime, said: Sequence[Exchange] = ()
) -> StepBar:
    """The drawing of this run as it was at `now`. said: its exchanges with services."""
    times = times_of(run, steps, history)
    spans = [span for one in times for span in one.spans]
    first = min([run.created_at, *(span.began for span in spans)])
    last = max([run.finished_at or now, *(span.ended or now for span in spans)])
    whole = max(last - first, timedelta(milliseconds=1))
    rows = [_row(one, first, whole, now, said) for one in times]
    forward = [row for row in rows if row.step.direction == Direction.DO]
    return StepBar(
        rows=rows,
        stages=_stages(forward),
        undone=[row for row in rows if row.step.direction == Direction.UNDO],
        began=first,
        ended=run.finished_at,
        took=last - first,
    )


def _row(times: StepTimes, first: datetime, whole: timedelta, now: datetime, said: Sequence[Exchange]) -> Row:
    def bar(span: Span) -> Bar:
        width = max(LEAST, WIDTH * (((span.ended or now) - span.began) / whole))
        x = min(WIDTH - width, WIDTH * ((span.began - first) / whole))
        return Bar(kind=span.kind, x=f"{max(0.0, x):.1f}", width=f"{width:.1f}")

    place = times.step.direction, times.step.position
    return Row(
        step=times.step,
        said=[one for one in said if (one.direction, one.position) == place],
        waited=times.total(WAITED, now),
        worked=times.total(WORKED, now),
        stopped=times.total(STOPPED, now),
        began=times.began,
        ended=times.ended,
        bars=[bar(span) for span in times.spans],
        attempts=[(span, (span.ended or now) - span.began) for span in times.attempts],
    )


def _stages(rows: Sequence[Row]) -> list[list[Row]]:
    """The forward steps by how many steps come before them on the longest way."""
    depth: dict[int, int] = {}
    stages: dict[int, list[Row]] = {}
    for number, row in enumerate(rows):
        after: Any = row.step.after
        place = number if after is None else max((depth.get(position, 0) + 1 for position in after), default=0)
        depth[row.step.position] = place
        stages.setdefault(place, []).append(row)
    return [stages[place] for place in sorted(stages)]
