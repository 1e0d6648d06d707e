"""How long each step of a run waited and worked, attempt by attempt, read from the run's history. No queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from supervision.insight.queries import TimelineEntry
from supervision.models import Run, StepState
from supervision.states import Direction, ProcessState, RunState

WAITED, WORKED, STOPPED = "waited", "worked", "stopped"
_BEFORE_AN_END = {ProcessState.PROCESSING: WORKED, ProcessState.PENDING: WAITED, ProcessState.ERROR: STOPPED}


@dataclass(frozen=True, kw_only=True)
class Span:
    """A time in which a step waited for its turn, was worked on, or stood in Error.

    ended: None while it goes on. attempt: the number, of what was worked. outcome, why: the state that ended it, and the reason given.
    """

    kind: str
    began: datetime
    ended: datetime | None
    attempt: int | None = None
    outcome: str | None = None
    why: str = ""
    actor: str = ""


@dataclass
class StepTimes:
    """One step with its times. ready: when the steps before it had ended."""

    step: StepState
    spans: list[Span] = field(default_factory=list)
    ready: datetime | None = None

    @property
    def began(self) -> datetime | None:
        """When its first attempt began."""
        return next((span.began for span in self.spans if span.kind == WORKED), None)

    @property
    def ended(self) -> datetime | None:
        """When it ended; None if it has not."""
        return self.spans[-1].ended if self.spans else None

    @property
    def attempts(self) -> list[Span]:
        """Its attempts, in order."""
        return [span for span in self.spans if span.kind == WORKED]

    def total(self, kind: str, now: datetime) -> timedelta | None:
        """How long it waited, worked or was stopped in all; None if it never was."""
        found = [(span.ended or now) - span.began for span in self.spans if span.kind == kind]
        return sum(found, timedelta(0)) if found else None


def times_of(run: Run, steps: Sequence[StepState], history: Sequence[TimelineEntry]) -> list[StepTimes]:
    """The times of these steps, which are all of one run, in the order given."""
    told: dict[tuple[str, str], list[TimelineEntry]] = {}
    for entry in history:
        if entry.kind == "event" and entry.step is not None and entry.direction is not None:
            told.setdefault((str(entry.direction), entry.step), []).append(entry)
    began = {Direction.DO.value: run.created_at, Direction.UNDO.value: _undoing_since(run, history)}
    found: list[StepTimes] = []
    by_place: dict[tuple[str, int], StepTimes] = {}
    for step in steps:
        way = str(step.direction)
        if step.after is not None:
            before = [by_place[way, place] for place in step.after if (way, place) in by_place]
        else:
            before = [one for one in found[-1:] if str(one.step.direction) == way]
        ready = _ready(before, began[way])
        times = StepTimes(step, _spans(told.get((way, step.name), ()), ready), ready)
        found.append(times)
        by_place[way, step.position] = times
    return found


def _ready(before: Sequence[StepTimes], began: datetime | None) -> datetime | None:
    """When a step's turn came: at the last end of those before it. None where one of them has not ended."""
    if not before:
        return began
    ends = [one.ended for one in before]
    return None if None in ends else max(end for end in ends if end is not None)


def _undoing_since(run: Run, history: Sequence[TimelineEntry]) -> datetime | None:
    moments = (entry.at for entry in history if entry.kind == "event" and entry.step is None and entry.to_state == RunState.COMPENSATING)
    return next(moments, run.created_at)


def _spans(entries: Sequence[TimelineEntry], ready: datetime | None) -> list[Span]:
    spans: list[Span] = []
    since, kind, attempt = ready, WAITED, None
    for entry in entries:
        if since is not None and entry.at > since:
            who = entry.actor if kind == WORKED else ""
            ended = Span(
                kind=kind, began=since, ended=entry.at, attempt=attempt, outcome=entry.to_state, why=entry.why or "", actor=who
            )  # fmt: skip
            spans.append(ended)
        since, attempt = entry.at, entry.attempt
        kind = _BEFORE_AN_END.get(ProcessState(str(entry.to_state)), "")
        if not kind:
            since = None  # Processed, Skipped, Cancelled: it has ended, unless it is done again
    if since is not None and kind:
        spans.append(Span(kind=kind, began=since, ended=None, attempt=attempt if kind == WORKED else None))
    return spans
