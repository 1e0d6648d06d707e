"""The filters of the list of runs. Each works for runs and for models that have a run (`run_path`)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.views.main import PAGE_VAR, SEARCH_VAR
from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from supervision.agent import agents
from supervision.insight.filters import BadFilter, Filters
from supervision.models import Alert, Run, StepState
from supervision.models.labels import RUN_LABELS
from supervision.states import FINAL_RUN_STATES, ProcessState, RunState
from supervision.workflow import workflows

UNFINISHED = [state.value for state in RunState if state not in FINAL_RUN_STATES]


class RunFilter(admin.SimpleListFilter):
    """A filter that works for runs and for models that have a run. A value that is not offered finds nothing, and the page says so."""

    def __init__(self, request: HttpRequest, params: dict[str, Any], model: Any, model_admin: Any) -> None:
        self.run_path = model_admin.run_path
        super().__init__(request, params, model, model_admin)

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if not (value := self.value()):
            return queryset
        offered = [key for key, _label in self.lookup_choices]
        if value not in offered:
            tell(request, f"{self.title}: {gettext('Expected one of: %(words)s.') % {'words': ', '.join(offered)}}")
            return queryset.none()
        return self.narrowed(queryset, value)

    def narrowed(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        """The rows that fit this offered value."""
        raise NotImplementedError

    def on_run(self, rows: QuerySet[Any], **lookups: Any) -> QuerySet[Any]:
        return rows.filter(**{f"{self.run_path}{name}": value for name, value in lookups.items()})

    def with_step(self, rows: QuerySet[Any], steps: QuerySet[StepState]) -> QuerySet[Any]:
        return self.on_run(rows, pk__in=steps.values("run_id"))


def tell(request: HttpRequest, said: str) -> None:
    """Show this error on the page, once."""
    if said not in (str(message) for message in messages.get_messages(request)):
        messages.error(request, said)


class ListFilters(admin.ListFilter):
    """The filters that the API and the commands have as well (`supervision.insight.filters`), as one form."""

    title = _("fields")
    template = "admin/supervision/_filters.html"

    def __init__(self, request: HttpRequest, params: dict[str, Any], model: Any, model_admin: Any) -> None:
        super().__init__(request, params, model, model_admin)
        self.filters: Filters = model_admin.filters
        self.used_parameters = {name: params.pop(name)[-1] for name in self.filters.fields if name in params}

    def has_output(self) -> bool:
        return True

    def expected_parameters(self) -> list[str | None]:
        return list(self.filters.fields)

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        try:
            values = self.filters.read(self.used_parameters)
            if only_fields(request, self.filters) and (self.filters.walks(values) or self.filters.has_newest(values)):
                request.found_by = values  # type: ignore[attr-defined]  # for the list's paginator: nothing is read here
                return queryset
            narrowed, few = self.filters.narrow(queryset, values)
        except BadFilter as bad:
            tell(request, f"{self.filters.fields[bad.name].label}: {bad}")
            return queryset.none()
        request.few_rows = few  # type: ignore[attr-defined]  # for the list's paginator
        return narrowed

    def choices(self, changelist: Any) -> Iterator[Any]:
        """Each field with what is typed into it, and the other parameters of the address."""
        steps = dict.fromkeys(step.name for workflow in workflows() for step in workflow.steps)
        known: dict[str, list[tuple[str, Any]]] = {
            "process_state": [(state.value, label) for state, label in RUN_LABELS.items()],
            "step": [(name, name) for name in steps],
            **self.filters.offers,
        }
        for name, field in self.filters.fields.items():
            said = str(self.used_parameters.get(name, ""))
            offers = [*known.get(name, [])]
            if said and offers and said not in dict(offers):
                offers.append((said, said))
            yield {"name": name, "field": field, "value": said, "offers": offers, "selected": bool(said)}
        others: dict[str, Any] = {name: value for name, value in changelist.get_filters_params().items() if name not in self.filters.fields}
        for name, values in others.items():
            for value in values if isinstance(values, list) else [values]:
                yield {"name": name, "hidden": True, "value": value}
        if changelist.query:
            yield {"name": SEARCH_VAR, "hidden": True, "value": changelist.query}


def alone(request: HttpRequest) -> dict[str, str]:
    """The only parameter that narrows the list; empty if there are several."""
    used = {name: str(value) for name, value in request.GET.items() if value and name != PAGE_VAR}
    return used if len(used) == 1 else {}


def only_fields(request: HttpRequest, filters: Filters) -> bool:
    """Whether this shows pages of a list that nothing but the filters' own fields narrows."""
    used = {name for name, value in request.GET.items() if value and name != PAGE_VAR}
    return request.method == "GET" and getattr(request, "pages", False) and used <= filters.fields.keys()


def few_rows(request: HttpRequest, filters: Filters) -> bool:
    """Whether the request's filters leave few rows, or rows that are found from the unfinished runs."""
    used = {name for name, value in request.GET.items() if value}
    selective = filters.unfinished_only | {AgeFilter.parameter_name, AlertFilter.parameter_name, PlaceFilter.parameter_name}
    return getattr(request, "few_rows", False) or bool(used & selective)


def newest_runs(request: HttpRequest, filters: Filters, most: int) -> list[int] | None:
    """The newest runs of a list that only one filter narrows, so many as its pages need; None: it has to be read otherwise."""
    used = alone(request)
    if used == {AlertFilter.parameter_name: "yes"}:
        alerts = Alert.objects.filter(filters.listed("run_id"), closed_at__isnull=True)
        return list(dict.fromkeys(alerts.order_by("-run_id").values_list("run_id", flat=True)[:most]))
    if AgeFilter.parameter_name in used and (age := AgeFilter.ages.get(used[AgeFilter.parameter_name])) is not None:
        old = Run.objects.filter(filters.listed("pk"), created_at__lt=Now() - age[1]).order_by("-created_at").values_list("pk", flat=True)
        return [run for state in UNFINISHED for run in old.filter(process_state=state)[:most]]
    try:
        return filters.newest(filters.read(used), most)
    except BadFilter:
        return None


class AgeFilter(RunFilter):
    title = _("unfinished for")
    parameter_name = "age"
    ages = {
        "5m": (_("more than 5 minutes"), timedelta(minutes=5)),
        "1h": (_("more than an hour"), timedelta(hours=1)),
        "1d": (_("more than a day"), timedelta(days=1)),
    }

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [(key, label) for key, (label, _age) in self.ages.items()]

    def narrowed(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        return self.on_run(rows, process_state__in=UNFINISHED, created_at__lt=Now() - self.ages[value][1])


class AlertFilter(RunFilter):
    title = _("open alert")
    parameter_name = "alert"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [("yes", _("Has an open alert"))]

    def narrowed(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        return self.on_run(rows, pk__in=Alert.objects.filter(closed_at__isnull=True).values("run_id"))


class PlaceFilter(RunFilter):
    """Where runs are right now: the rows behind the landing page's queue table."""

    title = _("place")
    parameter_name = "at"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        places: list[tuple[str, Any]] = [("overdue", _("overdue"))]
        for agent in agents():
            places.append((f"{agent.name}.waiting", _("waiting for %(agent)s") % {"agent": agent.name}))
            places.append((f"{agent.name}.running", _("running at %(agent)s") % {"agent": agent.name}))
            places.append((f"{agent.name}.overdue", _("overdue at %(agent)s") % {"agent": agent.name}))
        return places

    def narrowed(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        agent, _dot, kind = value.rpartition(".")
        steps = StepState.objects.filter(agent=agent) if agent else StepState.objects.all()
        match kind:
            case "waiting":
                due = Q(process_state=ProcessState.PENDING, not_before__lte=Now())
                steps = steps.filter(due | Q(process_state=ProcessState.PROCESSING, started_at__isnull=True))
            case "running":
                steps = steps.filter(process_state=ProcessState.PROCESSING, started_at__isnull=False)
            case "overdue":
                steps = steps.filter(process_state=ProcessState.PROCESSING, complete_by__lt=Now())
        return self.with_step(rows, steps)


class ChildFilter(RunFilter):
    """Leaves out the runs that steps of other runs have started, or shows only them."""

    title = _("child runs")
    parameter_name = "children"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [("no", _("Without child runs")), ("only", _("Only child runs"))]

    def narrowed(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        return self.on_run(rows, parent_key__isnull=value == "no")


OTHER_PARAMETERS = tuple(one.parameter_name for one in (AgeFilter, AlertFilter, PlaceFilter, ChildFilter))
RUN_FILTERS = (ListFilters, AgeFilter, AlertFilter, PlaceFilter, ChildFilter)
