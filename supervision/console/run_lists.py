"""The list and the page of runs for operators, under any name that an application gives them.

`RunConsole` is the base of the engine's own Run admin and of an application's (the shop's Order admin): set
`run_path` to the lookup that leads from the model to its run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db.models import Case, IntegerField, Q, QuerySet, When
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.safestring import SafeString
from django.utils.text import Truncator
from django.utils.translation import gettext_lazy as _
from unfold.decorators import action, display

from supervision.approvals import waiting
from supervision.console.bounded_lists import BoundedChangeList, ErrorFirst
from supervision.console.pause_pages import pause_verb
from supervision.console.run_filters import RUN_FILTERS
from supervision.console.run_page.note_pages import RunNotes
from supervision.console.run_page.step_bar import step_bar
from supervision.console.shared import TONES
from supervision.console.verb_forms import Verb, failed_names, failed_step, verbs_for
from supervision.desk import notes
from supervision.incidents import lifecycle
from supervision.insight import family, queries
from supervision.insight.filters import Filters
from supervision.insight.waiting import why_waiting
from supervision.ledger import exchanges
from supervision.models import Alert, Incident, Run, Signal
from supervision.models.labels import RUN_LABELS
from supervision.plans import personal
from supervision.states import FINAL_RUN_STATES, FINAL_STEP_STATES, Direction, ProcessState, RunState

EVENTS_SHOWN = 200
SIGNALS_SHOWN = 20  # the newest; each may have 64 kB
LABELS = {state.value: {"neutral": None}.get(tone, tone) for state, tone in TONES.items()}


def labelled(state: str) -> tuple[str, Any]:
    """A state with its words, for a column whose colours are `LABELS`."""
    return state, RUN_LABELS[RunState(state)]


class RunChangeList(BoundedChangeList):
    """Reads the steps of the page's runs in one query and attaches them to the rows."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        rows: list[Any] = list(self.result_list)
        run_of = self.model_admin.run_of
        steps = queries.steps_of([run_of(row).pk for row in rows])
        because = why_waiting([run_of(row).pk for row in rows if run_of(row).finished_at is None])
        owners = notes.owners([run_of(row).key for row in rows])
        for row in rows:
            row.shown_owner = owners.get(run_of(row).key, "")
            mine = steps.get(run_of(row).pk, [])
            row.shown_because = because.get(run_of(row).pk)
            row.shown_step = failed_step(mine) or next((step for step in mine if step.process_state not in FINAL_STEP_STATES), None)


class RunConsole(RunNotes):
    """An admin of runs, or of rows that have a run: a list with those in Error first, and a page for each with its verbs."""

    run_path = ""
    newest_first: Sequence[str] = ("-pk",)
    search_words = _("public id")
    actions = ["resubmit_selected", "cancel_selected"]
    list_filter = RUN_FILTERS
    filters = Filters()
    list_filter_submit = False
    aged_from = "created_at"
    search_fields = ["pk"]  # makes the search box appear; `get_search_results` does the searching

    @property
    def search_help_text(self) -> Any:
        return self.search_words

    def facts(self, obj: Any) -> list[tuple[Any, Any]]:
        """Labels and values that the page shows above the run's steps."""
        raise NotImplementedError

    def lines(self, obj: Any) -> Sequence[Any]:
        """The order's lines, if the application has any."""
        return ()

    def machinery(self, obj: Any) -> list[tuple[Any, Any]]:
        """Labels and values for engineers, which the page folds away."""
        run = self.run_of(obj)
        return [
            (_("Public id"), run.key),
            (_("Workflow"), f"{run.workflow}, {_('version')} {run.version}"),
            (_("Priority"), run.priority or None),
            (_("Session"), run.session_key),
            (_("Complete by"), run.complete_by),
        ]

    def panels(self, request: HttpRequest, obj: Any, /) -> Sequence[SafeString]:
        """Parts that the application adds to the page, below the steps."""
        return ()

    # --- List ---------------------------------------------------------------------------------------------------------

    def get_ordering(self, request: HttpRequest) -> list[Any]:
        rank = Case(When(**{f"{self.run_path}process_state": RunState.ERROR}, then=0), default=1)
        rank.output_field = IntegerField()
        return [rank.asc(), *self.newest_first]

    def get_paginator(self, request: HttpRequest, queryset: Any, per_page: int, *args: Any, **kwargs: Any) -> Paginator:
        if queryset.model is not self.model:  # Django's history page reads its log
            return super().get_paginator(request, queryset, per_page, *args, **kwargs)
        rows: Any = ErrorFirst(queryset, f"{self.run_path}process_state", self.newest_first)
        return Paginator(rows, per_page)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[RunChangeList]:
        return RunChangeList

    def search(self, term: str) -> Q:
        """The condition of the search box. It must be one that an index answers."""
        return Q(**{f"{self.run_path}key": term})

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> tuple[Any, bool]:
        term = search_term.strip()
        return (queryset.filter(self.search(term)) if term else queryset), False

    @display(description=_("State"), label=LABELS)
    def state(self, obj: Any) -> tuple[str, Any]:
        return labelled(self.run_of(obj).process_state)

    @display(description=_("Step"), empty_value="")
    def step(self, obj: Any) -> str | None:
        if obj.shown_step is None:
            return None
        undoing = obj.shown_step.direction == Direction.UNDO
        return _("undo %(step)s") % {"step": obj.shown_step.name} if undoing else obj.shown_step.name

    @display(description=_("Attempts"), empty_value="")
    def attempts(self, obj: Any) -> int | None:
        return obj.shown_step.attempt if obj.shown_step else None

    @display(description=_("Owner"), empty_value="")
    def owner(self, obj: Any) -> str | None:
        return obj.shown_owner or None

    @display(description=_("What holds it up"), empty_value="")
    def error(self, obj: Any) -> str | None:
        failed = obj.shown_step is not None and obj.shown_step.process_state == ProcessState.ERROR
        text = obj.shown_step.last_error if failed else obj.shown_because
        return Truncator(" ".join(text.split())).chars(90) if text else None

    @action(description=_("Resubmit the failed steps of selected orders"), permissions=["operate"])
    def resubmit_selected(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        return self.confirm_bulk(request, queryset, "resubmit")

    @action(description=_("Cancel selected orders"), permissions=["operate"])
    def cancel_selected(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        return self.confirm_bulk(request, queryset, "cancel")

    # --- Page ---------------------------------------------------------------------------------------------------------

    def get_urls(self) -> list[URLPattern]:
        name = f"{self.opts.app_label}_{self.opts.model_name}_of_run"
        of_run = path("of-run/<int:run_id>/", self.admin_site.admin_view(self.of_run_view), name=name)
        return [of_run, *self.verb_urls(), *self.note_urls(), *super().get_urls()]

    def of_run_view(self, request: HttpRequest, run_id: int) -> HttpResponse:
        """Redirect from a run's id to the page that shows it."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        obj = self.model._default_manager.filter(**{f"{self.run_path}pk": run_id}).first()
        if obj is None:  # a run of another application's workflow
            return HttpResponseRedirect(reverse("admin:supervision_run_change", args=[run_id]))
        return HttpResponseRedirect(self._address("change", obj.pk))

    def history_view(self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """What operators did: their verbs are logged at the run."""
        obj = self.get_object(request, object_id) if self.run_path else None
        runs: Any = self.admin_site._registry.get(Run)
        if obj is None or runs is None or not self.has_view_permission(request) or not Run.objects.filter(pk=self.run_of(obj).pk).exists():
            answer: HttpResponse = super().history_view(request, object_id, extra_context)
        else:
            answer = runs.history_view(request, str(self.run_of(obj).pk), {"title": str(obj), **(extra_context or {})})
        return answer

    def show(self, request: HttpRequest, obj: Any, /) -> HttpResponse:
        """Show everything about one run. The page takes no POST: verbs have pages of their own."""
        run = self.run_of(obj)
        steps = queries.steps_of([run.pk]).get(run.pk, [])
        history = queries.timeline(run.pk)
        shown = history if "all" in request.GET else history[-EVENTS_SHOWN:]
        return self.page(
            request, "run.html", title=str(obj), object=obj, original=obj, run=run,
            approvals=waiting.of_order(run.key), steps=personal.steps_shown(run.workflow, steps),
            state_label=RUN_LABELS[RunState(run.process_state)], tone=TONES[RunState(run.process_state)],
            facts=[(label, value) for label, value in self.facts(obj) if value not in (None, "")],
            lines=self.lines(obj), failed=failed_step(steps), failed_names=failed_names(steps),
            waiting_because=why_waiting([run.pk])[run.pk],
            bar=step_bar(run, steps, history, timezone.now(), exchanges.of(run.pk)),
            panels=[*self.panels(request, obj), self.notes_panel(request, obj)],
            machinery=[(label, value) for label, value in self.machinery(obj) if value not in (None, "")],
            signals=personal.signals_shown(run.workflow, Signal.objects.filter(run_key=run.key).order_by("-pk")[:SIGNALS_SHOWN]),
            family=family.of(run.key), timeline=shown, hidden_events=len(history) - len(shown),
            alerts=Alert.objects.filter(run=run, closed_at__isnull=True).order_by("-raised_at"),
            incident=Incident.objects.filter(pk__in=lifecycle.holding([run.pk]).values()).first(),
            final=run.process_state in FINAL_RUN_STATES, may_operate=self.has_operate_permission(request),
            verbs=self._verbs(run, obj) if self.has_operate_permission(request) else [], back=self._address("changelist"),
        )  # fmt: skip

    def _verbs(self, run: Run, obj: Any) -> list[tuple[Verb, str]]:
        verbs = [(verb, self._address("operate", obj.pk, verb.name)) for verb in verbs_for(run)]
        pausing = pause_verb(run, self._address("change", obj.pk))
        return [*verbs, pausing] if pausing else verbs
