"""The read side, for screens, API, commands and metrics. Reads never lock and never write."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from django.db.models import BooleanField, Case, Count, F, Q, QuerySet, When
from django.db.models.functions import Now
from django.utils.translation import gettext as _

from supervision.models import Alert, ArchivedRun, Pause, Run, StepEvent, StepState, StrayReply
from supervision.postgres import db
from supervision.runtime.identity import is_process, role_and_process
from supervision.states import Direction, ProcessState, RunState

PAUSED, RESUMED = "Paused", "Resumed"  # in a history: an order's own pauses and their ends; neither is a state
_OVER = Case(When(Q(until__lte=Now()), then=True), default=False, output_field=BooleanField())


@dataclass(frozen=True)
class TimelineEntry:
    """One line of a run's history: a transition (`event`), an answer that came too late (`stray`), or a pause of this
    order and its end (`pause`)."""

    at: datetime
    seq: int | None
    kind: str
    step: str | None
    direction: str | None
    attempt: int | None
    from_state: str | None
    to_state: str | None
    actor: str
    why: str


def in_order(steps: Iterable[StepState]) -> list[StepState]:
    """Forward steps by position, then undo steps in the order they run."""
    return sorted(steps, key=lambda step: (step.direction, step.position if step.direction == Direction.DO else -step.position))


def steps_of(run_ids: Sequence[int]) -> dict[int, list[StepState]]:
    """The steps of these runs in the order they run, by run id."""
    found: dict[int, list[StepState]] = {run_id: [] for run_id in run_ids}
    for step in StepState.objects.filter(run_id__in=list(run_ids)):
        found[step.run_id].append(step)
    for run_id, archived in archived_runs([run_id for run_id, steps in found.items() if not steps]).items():
        found[run_id] = archived.steps
    for steps in found.values():
        _name_what_comes_before(steps)
    return {run_id: in_order(steps) for run_id, steps in found.items()}


class NamedStep(NamedTuple):
    """The step that a list names for a run, with what a list shows of it."""

    name: str
    direction: str
    attempt: int
    process_state: str
    last_error: str | None


# What failed before the run went back stays in Error beside its undo steps: it comes last.
_NAMED = """
SELECT DISTINCT ON (s.run_id) s.run_id, s.name, s.direction, s.attempt, s.process_state, s.last_error
  FROM supervision_stepstate s JOIN supervision_run r ON r.id = s.run_id
 WHERE s.run_id = ANY (%(runs)s::bigint[]) AND s.process_state NOT IN ('Processed', 'Skipped', 'Cancelled')
 ORDER BY s.run_id, s.process_state = 'Error' AND s.direction <> r.direction, s.process_state <> 'Error', s.direction,
          CASE s.direction WHEN 'do' THEN s.position ELSE -s.position END
"""


def named_steps(run_ids: Sequence[int]) -> dict[int, NamedStep]:
    """The step that failed, else the first that is not done yet, by run id, in one statement."""
    rows = db.fetch(_NAMED, {"runs": list(run_ids)}) if run_ids else []
    return {run_id: NamedStep(*facts) for run_id, *facts in rows}


def _name_what_comes_before(steps: Sequence[StepState]) -> None:
    """Set `after_names` of the steps of a plan that branches: the steps that each comes after, as text."""
    names = {step.position: step.name for step in steps}
    for step in steps:
        if step.after is not None and step.direction == Direction.DO:
            step.after_names = ", ".join(names[position] for position in step.after)  # type: ignore[attr-defined]


def archived_run(key: str) -> ArchivedRun | None:
    """The run of this public id, if it has left the hot tables."""
    return ArchivedRun.objects.filter(key=key).first()


def archived_runs(run_ids: Sequence[int]) -> dict[int, ArchivedRun]:
    """The archived runs among these, by run id. They have left the hot tables."""
    return {row.run_id: row for row in ArchivedRun.objects.filter(run_id__in=list(run_ids))} if run_ids else {}


def events_after(run_id: int, seq: int = 0, most: int | None = None) -> list[StepEvent]:
    """A run's events after this number, in order: so many at most."""
    return list(StepEvent.objects.filter(run_id=run_id, seq__gt=seq).order_by("seq")[:most])


def of_a_process(event: StepEvent) -> bool:
    """Whether one of the engine's processes wrote the event, and not a person."""
    return is_process(event.actor)


def why_of(event: StepEvent) -> str:
    """The stored reason. Where the scheduler's code wrote the event, it is the process that this code ran in.

    The scheduler consumes submissions and claims steps, in its own process or by local pick-up in an agents process. FINISH
    claims the next step of a chain in the agents process that performed the one before.
    """
    consumed = event.position is None and event.from_state is None
    claimed = event.position is not None and event.to_state == ProcessState.PROCESSING
    if event.why or not (consumed or claimed):
        return event.why or ""
    role, process = role_and_process(event.actor)
    handed_over = role.startswith("agents") and event.position and event.direction == Direction.DO
    return f"handed over in {process}" if handed_over else f"scheduled in {process}"


def timeline(run_id: int) -> list[TimelineEntry]:
    """Everything that happened to a run: transitions in their order, stray replies by their time."""
    events = events_after(run_id)
    archived = None if events else archived_runs([run_id]).get(run_id)
    if archived is not None:
        events = archived.events
    names = {step.position: step.name for step in steps_of([run_id])[run_id] if step.direction == Direction.DO}
    entries = [
        TimelineEntry(
            event.at,
            event.seq,
            "event",
            None if event.position is None else names.get(event.position),
            event.direction,
            event.attempt,
            event.from_state,
            event.to_state,
            event.actor,
            why_of(event),
        )
        for event in events
    ]
    for stray in [*(archived.strays if archived else ()), *StrayReply.objects.filter(run_id=run_id).order_by("at")]:
        entry = TimelineEntry(
            stray.at,
            None,
            "stray",
            names.get(stray.position),
            stray.direction,
            stray.attempt,
            None,
            None,
            stray.actor,
            f"{stray.outcome} {stray.detail}".strip(),
        )
        _insert(entries, entry)
    for entry in _pauses(run_id, archived):
        _insert(entries, entry)
    return entries


def _insert(entries: list[TimelineEntry], entry: TimelineEntry) -> None:
    place = next((n for n, other in enumerate(entries) if other.at > entry.at), len(entries))
    entries.insert(place, entry)


def _pauses(run_id: int, archived: ArchivedRun | None) -> Iterator[TimelineEntry]:
    """This order's own pauses. A replaced pause ends when the next one begins, so its end gets no line of its own."""
    key = Run.objects.filter(pk=run_id).values("key")[:1]
    live = Pause.objects.filter(scope=Pause.Scope.ORDER, name=key).annotate(over=_OVER).order_by("paused_at", "pk")
    rows: list[Any] = archived.pauses if archived else list(live)
    for row in rows:
        yield _pause_entry(row.paused_at, PAUSED, row.paused_by, row.reason)
        if row.lifted_at is not None and row.lifted_by:
            if not any(other.pk > row.pk and other.paused_at == row.lifted_at for other in rows):
                yield _pause_entry(row.lifted_at, RESUMED, row.lifted_by, row.lift_reason)
        elif row.until is not None and (archived or row.over):
            yield _pause_entry(row.until, RESUMED, "", _("Its time was over."))


def _pause_entry(at: datetime, to_state: str, actor: str, why: str) -> TimelineEntry:
    return TimelineEntry(at, None, "pause", None, None, None, None, to_state, actor, why)


def counts_by_state() -> dict[str, int]:
    """How many runs are in each unfinished state, exactly; the partial index makes it cheap at any table size."""
    unfinished = [RunState.PENDING, RunState.PROCESSING, RunState.ERROR, RunState.COMPENSATING]
    counts = {state.value: 0 for state in unfinished}
    rows = Run.objects.filter(process_state__in=unfinished).values_list("process_state")
    counts.update(dict(rows.annotate(Count("pk"))))
    return counts


def overdue_count() -> int:
    """How many steps are past their complete_by and not yet recovered."""
    rows = db.fetch("SELECT count(*) FROM supervision_stepstate WHERE process_state = 'Processing' AND complete_by < now()")
    return int(rows[0][0])


def open_alerts(limit: int = 50) -> QuerySet[Alert]:
    """Open alerts that wait for an operator, newest first. Those that are acknowledged or of severity info are left out."""
    waiting = Alert.objects.filter(acknowledged_at__isnull=True, closed_at__isnull=True).exclude(severity="info")
    return waiting.select_related("run").order_by("-raised_at")[:limit]


def failing_steps() -> dict[str, int]:
    """How many orders are in Error at which step."""
    here = {"process_state": ProcessState.ERROR, "run__process_state": RunState.ERROR, "direction": F("run__direction")}
    rows = StepState.objects.filter(**here)
    return dict(rows.values_list("name").annotate(n=Count("run_id", distinct=True)).order_by("-n"))


def iso(at: datetime | None) -> str | None:
    """A time for JSON: ISO 8601, UTC."""
    return None if at is None else at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def step_answer(step: StepState) -> dict[str, Any]:
    """One step in its JSON form."""
    return {
        "name": step.name,
        "position": step.position,
        "direction": str(step.direction),
        "agent": step.agent,
        "process_state": str(step.process_state),
        "effect": str(step.effect),
        "attempt": step.attempt,
        "generation": step.generation,
        "failure_count": step.failure_count,
        "locked_by": step.locked_by,
        "complete_by": iso(step.complete_by),
        "not_before": iso(step.not_before),
        "last_error": step.last_error,
        "started_at": iso(step.started_at),
        "finished_at": iso(step.finished_at),
    }
