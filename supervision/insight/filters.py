"""The filters of the list of runs: one definition for the API, the console, the commands and jobs.

An application whose list has more to look for subclasses `Filters`, adds to `fields`, and names it in its `Directory`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from django.db.models import Exists, OuterRef, Q, QuerySet
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
STATES = [str(state) for state in RunState]
_HERE = Q(process_state__in=[ProcessState.PROCESSING, ProcessState.ERROR]) | Q(process_state=ProcessState.PENDING, not_before__isnull=False)


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
    fields: Mapping[str, Field] = {
        "process_state": Field(gettext_lazy("State"), state, "state"),
        "step": Field(gettext_lazy("Step"), text, help=gettext_lazy("orders that are at this step now")),
        "error_code": Field(gettext_lazy("Error code"), text, help=gettext_lazy("the code of what holds the order, exactly")),
        "error_text": Field(gettext_lazy("Error text"), text, help=gettext_lazy("a part of the failed step's error")),
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
        if value not in FINAL_RUN_STATES or not ArchivedRun.objects.filter(process_state=value).exists():
            return self.of_runs(rows, live.values("pk"))
        here, archived = live.filter(pk=OuterRef(self.run)), ArchivedRun.objects.filter(run_id=OuterRef(self.run), process_state=value)
        if value == RunState.PROCESSED:  # most of all: the newest are found at once
            return rows.filter(Exists(here) | Exists(archived))
        return self.of_runs(rows, live.values("pk").union(ArchivedRun.objects.filter(process_state=value).values("run_id"), all=True))

    def by_step(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        """The step where the run is now: it runs, it is due or waits, or it is in Error."""
        return self.of_runs(rows, StepState.objects.filter(_HERE, name=value).values("run_id"))

    def by_error_code(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        """The code of an open alert."""
        return self.of_runs(rows, Alert.objects.filter(closed_at__isnull=True, code=value).values("run_id"))

    def by_error_text(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        """A part of the error of a step in Error."""
        return self.of_runs(rows, StepState.objects.filter(process_state=ProcessState.ERROR, last_error__icontains=value).values("run_id"))

    def by_resource(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        """The resource of the step where the run is now: the one it was routed to, else its agent's."""
        service = Resource.objects.filter(name=value).values_list("service", flat=True).first() or value
        mine = [agent.name for agent in agents() if agent.resource in (value, service)]
        return self.of_runs(
            rows, StepState.objects.filter(_HERE, Q(resource=value) | Q(resource__isnull=True, agent__in=mine)).values("run_id")
        )

    def by_created_after(self, rows: QuerySet[Any], value: datetime) -> QuerySet[Any]:
        """Placed after this moment."""
        return rows.filter(created_at__gt=value)

    def by_created_before(self, rows: QuerySet[Any], value: datetime) -> QuerySet[Any]:
        """Placed before this moment."""
        return rows.filter(created_at__lt=value)

    def by_incident(self, rows: QuerySet[Any], value: int) -> QuerySet[Any]:
        """The runs that an open incident holds; none once it is closed."""
        incident = Incident.objects.filter(pk=value, closed_at__isnull=True).first()
        runs = lifecycle.runs_of(incident.kind, incident.cause) if incident is not None else []
        return self.of_runs(rows, RawSQL("SELECT unnest(%s::bigint[])", [list(runs)]))
