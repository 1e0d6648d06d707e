"""The filters of the list of runs: one definition for the API, the console, the commands and jobs.

An application whose list has more to look for subclasses `Filters`, adds to `fields`, and names it in its `Directory`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from django.db import connection, transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.db.models.expressions import RawSQL
from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from supervision.agent import agents
from supervision.incidents import lifecycle
from supervision.models import Alert, ArchivedRun, Incident, Resource, Run, StepState
from supervision.states import FINAL_RUN_STATES, ProcessState, RunState

LONGEST = 200
STEP_ERROR = "step_error"  # the kind of the incidents of steps in Error
FEW = 2_000  # so many rows are read for a page without that a reader notices
MANY = 20_000  # so many unfinished runs are found through their indexes
_UNFINISHED = [str(state) for state in RunState if state not in FINAL_RUN_STATES]
STATES = [str(state) for state in RunState]
_OF_STEPS = frozenset({"step", "error_text", "resource"})  # filters that only steps of unfinished runs fit
# A step in Error where its run has stopped. It stays in Error when its order is cancelled, and the order is not there any more.
_STOPPED = Q(process_state=ProcessState.ERROR, run__process_state__in=_UNFINISHED, run__direction=F("direction"))
# The steps where runs are now. Each part is read through a partial index of its own: the planner does not see that of all three.
_HERE = (
    _STOPPED,
    Q(process_state=ProcessState.PROCESSING),
    Q(process_state=ProcessState.PENDING, not_before__isnull=False),
)


def _archived(state: str) -> bool:
    """Whether a run in this state has left the hot tables."""
    return ArchivedRun.objects.filter(process_state=state).exists()


class BadFilter(ValueError):
    """A filter's value makes no sense, or there is no such filter. name: the filter's."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


@dataclass(frozen=True)
class Field:
    """One filter. read: its value from text; raises ValueError with what was expected. kind: text, time, amount, number or state."""

    label: Any
    read: Callable[[str], Any]
    kind: str = "text"
    help: Any = ""


def text(said: str) -> str:
    """Printable text of a bounded length."""
    if not said.isprintable():
        raise ValueError(_("Control characters are not allowed."))
    if len(said) > LONGEST:
        raise ValueError(_("Expected at most %(most)d characters.") % {"most": LONGEST})
    return said


def state(said: str) -> str:
    """A state of runs."""
    if said not in STATES:
        raise ValueError(_("Expected one of: %(words)s.") % {"words": ", ".join(STATES)})
    return said


def moment(said: str) -> datetime:
    """A time; without a zone it is in UTC. A date is its first moment."""
    try:
        # A plus sign in a query string arrives as a space.
        found = parse_datetime(said.strip().replace(" ", "+")) if "T" in said.upper() else parse_datetime(said.strip())
        if found is None and (day := parse_date(said.strip())) is not None:
            found = datetime(day.year, day.month, day.day)  # noqa: DTZ001 - made aware below
        if found is not None and timezone.is_naive(found):
            found = timezone.make_aware(found, UTC)
        if found is not None:
            found.astimezone(UTC)  # raises near the calendar's ends
    except (ValueError, OverflowError):
        found = None
    if found is None:
        raise ValueError(_("Expected a time, such as 2026-11-21T10:00:00Z."))
    return found


def number(said: str) -> int:
    """A row's number."""
    if not (said.isascii() and said.isdecimal() and len(said) <= 18):
        raise ValueError(_("Expected a whole number."))
    return int(said)


def amount(said: str) -> Decimal:
    """An amount of money, as a decimal."""
    whole, dot, cents = said.partition(".")
    if not (said.isascii() and whole.isdecimal() and len(whole) <= 12 and (not dot or (cents.isdecimal() and len(cents) <= 4))):
        raise ValueError(_('Expected an amount as a decimal, such as "25.80".'))
    return Decimal(said)


class Filters:
    """The engine's own, on runs. model: of the list's rows; run: the lookup of a row's run id."""

    model: Any = Run
    run = "pk"
    newest_first: Sequence[str] = ("-created_at", "-pk")
    # These find runs through their unfinished steps or open alerts, of which there are few beside all runs.
    unfinished_only: frozenset[str] = frozenset({"step", "error_code", "error_text", "resource", "incident"})
    # The values of a filter that a person chooses from, with their words.
    offers: Mapping[str, list[tuple[str, Any]]] = {}
    fields: Mapping[str, Field] = {
        "process_state": Field(gettext_lazy("State"), state, "state"),
        "step": Field(gettext_lazy("Step"), text, help=gettext_lazy("orders that are at this step now")),
        "error_code": Field(gettext_lazy("Error code"), text, help=gettext_lazy("the code of what holds the order, exactly")),
        "error_text": Field(gettext_lazy("Error text"), text, help=gettext_lazy("a part of the error that stops the order now")),
        "resource": Field(gettext_lazy("Resource"), text, help=gettext_lazy("the service of the step where the order is now")),
        "created_after": Field(gettext_lazy("Placed after"), moment, "time"),
        "created_before": Field(gettext_lazy("Placed before"), moment, "time"),
        "incident": Field(gettext_lazy("Incident"), number, "number", help=gettext_lazy("orders that this open incident holds")),
    }

    def rows(self) -> QuerySet[Any]:
        """All rows of the list."""
        found: QuerySet[Any] = self.model._default_manager.order_by(*self.newest_first)
        return found

    def read(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The values of these filters; empty ones do not filter. Raises BadFilter, which names the filter."""
        values: dict[str, Any] = {}
        for name, said in given.items():
            if name not in self.fields:
                raise BadFilter(name[:100], _("This filter is not known; known are: %(names)s.") % {"names": ", ".join(self.fields)})
            if not isinstance(said, str | int) or isinstance(said, bool):
                raise BadFilter(name, _("Expected text."))
            if str(said) == "":
                continue
            try:
                values[name] = self.fields[name].read(str(said))
            except ValueError as problem:
                raise BadFilter(name, str(problem)) from None
        return values

    def narrowed(self, rows: QuerySet[Any], values: Mapping[str, Any]) -> QuerySet[Any]:
        """The rows that fit all values, which `read` has returned."""
        return self.narrow(rows, values)[0]

    def narrow(self, rows: QuerySet[Any], values: Mapping[str, Any], *, rare: bool = False) -> tuple[QuerySet[Any], bool]:
        """The rows that fit all values, and whether they are few: then these are all that is read. rare: few are expected.

        The planner cannot know how many rows several filters leave together, and reads a table to its end when it expects many. So
        the values that leave few runs are asked first, each through its index, and the others look at these runs only."""
        runs, used = self.candidates(values, rare=rare)
        if runs is not None:
            rows = self.of_runs(rows, sorted(runs) if len(runs) <= FEW else RawSQL("SELECT unnest(%s::bigint[])", [sorted(runs)]))
        return self.by(rows, {name: value for name, value in values.items() if name not in used}), runs is not None

    def candidates(self, values: Mapping[str, Any], *, rare: bool = False) -> tuple[set[int] | None, set[str]]:
        """The runs that fit those of these values that leave few; and the names of these values. None: no value leaves few."""
        found: set[int] | None = None
        used: set[str] = set()
        sources = {name: source for name, value in values.items() if (source := self.source(name, value)) is not None}
        if not sources:
            return found, used
        with transaction.atomic(), connection.cursor() as cursor:
            # With a limit, the planner hopes to meet so many early in the table. If there are few, it reads all of it.
            cursor.execute("SET LOCAL enable_seqscan = off")
            of_runs = {*self.unfinished_only, "process_state"}
            for name, source in sorted(sources.items(), key=lambda one: one[0] in of_runs) if rare else sources.items():
                most = MANY if rare or name in of_runs else FEW
                if len(ids := list(source[: most + 1])) <= most:
                    found = set(ids) if found is None else found & set(ids)
                    used.add(name)
                if found is not None and len(found) <= (2 * FEW if rare else FEW // 20):
                    break
            cursor.execute("SET LOCAL enable_seqscan TO DEFAULT")
        return found, used

    def source(self, name: str, value: Any) -> Any:
        """The ids of the runs that this value leaves, through an index that needs nothing else; None: there is no such index."""
        if name == "process_state" and (value in _UNFINISHED or (value == RunState.CANCELLED and not _archived(value))):
            return Run.objects.filter(process_state=value).values_list("pk", flat=True)
        return getattr(self, f"runs_by_{name}")(value) if name in self.unfinished_only else None

    def newest(self, values: Mapping[str, Any], most: int) -> list[int] | None:
        """The newest runs that this one value leaves, for the pages of a list; None: there are several values, or no index has them."""
        if not self.has_newest(values):
            return None
        [(name, value)] = values.items()
        if name == "incident":
            return self.newest_of_incident(value, most)
        if name in ("step", "resource"):
            here = getattr(self, f"at_{name}")(value) & self.listed("run_id")
            return list(dict.fromkeys(steps_here(here, most).order_by("-run_id")[:most]))
        of_run, newest_first = ("pk", "-created_at") if name == "process_state" else ("run_id", "-run_id")
        return list(dict.fromkeys(self.source(name, value).filter(self.listed(of_run)).order_by(newest_first)[:most]))

    def listed(self, run: str) -> Q:
        """Whether the list has the run whose id this column has: the engine's own list has every run."""
        return Q()

    def has_newest(self, values: Mapping[str, Any]) -> bool:
        """Whether `newest` finds the runs of these values."""
        return len(values) == 1 and all(name == "incident" or self.source(name, value) is not None for name, value in values.items())

    def walks(self, values: Mapping[str, Any]) -> list[str]:
        """The states of the runs that these values leave, if all are unfinished: then a walk over the newest of them finds a page.

        Empty: they are found otherwise. An open alert alone does not say that its run is unfinished."""
        if not {"created_before", "incident"}.isdisjoint(values):
            return []
        if (wanted := values.get("process_state")) is not None:
            return [wanted] if wanted in _UNFINISHED and len(values) > 1 else []
        return [] if _OF_STEPS.isdisjoint(values) else _UNFINISHED

    def looked_up(self, runs: Sequence[int], values: Mapping[str, Any]) -> tuple[Sequence[int], dict[str, Any]]:
        """Those of these runs that fit the values about steps and alerts, asked for these runs alone; and the other values."""
        rest = {name: value for name, value in values.items() if name not in (*_OF_STEPS, "error_code", "process_state")}
        for name in sorted(values.keys() - rest.keys() - {"process_state"}):
            rows: QuerySet[Any]
            if name == "error_code":
                rows = Alert.objects.filter(closed_at__isnull=True, code=values[name])
            elif name == "error_text":
                rows = StepState.objects.filter(_STOPPED, last_error__icontains=values[name])
            else:
                rows = StepState.objects.filter(Q(*_HERE, _connector=Q.OR), getattr(self, f"at_{name}")(values[name]))
            if runs:
                runs = list(rows.filter(run_id__in=runs).values_list("run_id", flat=True).distinct())
        return runs, rest

    def by(self, rows: QuerySet[Any], values: Mapping[str, Any]) -> QuerySet[Any]:
        """The rows that fit all values, as one statement; nothing is read yet."""
        for name, value in values.items():
            rows = getattr(self, f"by_{name}")(rows, value)
        return rows

    def found(self, given: Mapping[str, Any]) -> QuerySet[Any]:
        """The rows that fit these filters, the newest first. Raises BadFilter."""
        return self.narrowed(self.rows(), self.read(given))

    def worth(self, rows: QuerySet[Any]) -> list[tuple[str, Decimal]]:
        """What the rows are worth, by currency. The engine has no notion of money."""
        return []

    # ------------------------------------------------------------------------------------------------- conditions

    def of_runs(self, rows: QuerySet[Any], runs: Any) -> QuerySet[Any]:
        """The rows whose runs are these."""
        return rows.filter(**{f"{self.run}__in": runs})

    def by_process_state(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        """A state of the run. Only runs that have ended are archived."""
        live = Run.objects.filter(process_state=value)
        if self.run == "pk":
            return rows.filter(process_state=value)
        if value not in FINAL_RUN_STATES or not _archived(value):
            return self.of_runs(rows, live.values("pk"))
        here, archived = live.filter(pk=OuterRef(self.run)), ArchivedRun.objects.filter(run_id=OuterRef(self.run), process_state=value)
        if value == RunState.PROCESSED:  # most of all: the newest are found at once
            return rows.filter(Exists(here) | Exists(archived))
        return self.of_runs(rows, live.values("pk").union(ArchivedRun.objects.filter(process_state=value).values("run_id"), all=True))

    def by_step(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        """The step where the run is now: it runs, it is due or waits, or it is in Error."""
        return self.of_runs(rows, self.source("step", value))

    def runs_by_step(self, value: str) -> QuerySet[Any]:
        """The steps of this name where runs are now."""
        return steps_here(self.at_step(value))

    def at_step(self, value: str) -> Q:
        """The steps of this name."""
        return Q(name=value)

    def by_error_code(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        """The code of an open alert."""
        return self.of_runs(rows, self.source("error_code", value))

    def runs_by_error_code(self, value: str) -> QuerySet[Any]:
        """The open alerts with this code."""
        return Alert.objects.filter(closed_at__isnull=True, code=value).values_list("run_id", flat=True)

    def by_error_text(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        """A part of the error that the order is stopped with."""
        return self.of_runs(rows, self.source("error_text", value))

    def runs_by_error_text(self, value: str) -> QuerySet[Any]:
        """The steps in Error where orders are stopped, and whose error has this part."""
        return StepState.objects.filter(_STOPPED, last_error__icontains=value).values_list("run_id", flat=True)

    def by_resource(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        """The resource of the step where the run is now: the one it was routed to, else its agent's."""
        return self.of_runs(rows, self.source("resource", value))

    def runs_by_resource(self, value: str) -> QuerySet[Any]:
        """The steps where runs are now that this resource serves."""
        return steps_here(self.at_resource(value))

    def at_resource(self, value: str) -> Q:
        """The steps that this resource serves."""
        service = Resource.objects.filter(name=value).values_list("service", flat=True).first() or value
        mine = [agent.name for agent in agents() if agent.resource in (value, service)]
        return Q(resource=value) | Q(resource__isnull=True, agent__in=mine)

    def by_created_after(self, rows: QuerySet[Any], value: datetime) -> QuerySet[Any]:
        """Placed after this moment."""
        return rows.filter(created_at__gt=value)

    def by_created_before(self, rows: QuerySet[Any], value: datetime) -> QuerySet[Any]:
        """Placed before this moment."""
        return rows.filter(created_at__lt=value)

    def by_incident(self, rows: QuerySet[Any], value: int) -> QuerySet[Any]:
        """The runs that an open incident holds; none once it is closed."""
        runs = self.runs_by_incident(value)
        return self.of_runs(rows, runs if len(runs) <= FEW else RawSQL("SELECT unnest(%s::bigint[])", [runs]))

    def runs_by_incident(self, value: int) -> list[int]:
        """What the incident's cause holds now."""
        incident = Incident.objects.filter(pk=value, closed_at__isnull=True).first()
        return [] if incident is None else list(lifecycle.runs_of(incident.kind, incident.cause))

    def newest_of_incident(self, value: int, most: int) -> list[int]:
        """The newest of the runs that an open incident holds. Of the kind that holds most runs, an index has them in this order."""
        incident = Incident.objects.filter(pk=value, closed_at__isnull=True, kind=STEP_ERROR).first()
        if incident is None:
            held = Run.objects.filter(self.listed("pk"), pk__in=self.runs_by_incident(value))
            return list(held.order_by("-pk").values_list("pk", flat=True)[:most])
        alerts = Alert.objects.filter(self.listed("run_id"), closed_at__isnull=True, cause=incident.cause).order_by("-run_id")
        return list(dict.fromkeys(alerts.values_list("run_id", flat=True)[:most]))


def steps_here(which: Q, newest: int | None = None) -> QuerySet[Any]:
    """The runs that are now at one of these steps. newest: at most so many of each part, the newest: an index finds them."""
    parts = [StepState.objects.filter(part, which).values_list("run_id", flat=True) for part in _HERE]
    if newest is not None:
        parts = [part.order_by("-run_id")[:newest] for part in parts]
    return parts[0].union(*parts[1:], all=True)
