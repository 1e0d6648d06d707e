"""The list and the page of runs for operators, under any name that an application gives them.

`RunConsole` is the base of the engine's own Run admin and of an application's (the shop's Order admin): set
`run_path` to the lookup that leads from the model to its run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlencode

from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import PAGE_VAR
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db.models import Case, IntegerField, QuerySet, When
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect, StreamingHttpResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import Truncator
from django.utils.translation import gettext_lazy as _
from unfold.decorators import action, display

from supervision.approvals import rights, waiting
from supervision.console.bounded_lists import BoundedChangeList
from supervision.console.lists import export
from supervision.console.lists.found_rows import COUNTED_AHEAD, COUNTED_UP_TO, ErrorFirst, FewRows
from supervision.console.lists.saved_views import SavedViews, view_query
from supervision.console.lists.searching import Way, understood, ways
from supervision.console.lists.walked_rows import WalkedRows
from supervision.console.pause_pages import pause_verb
from supervision.console.run_filters import OTHER_PARAMETERS, RUN_FILTERS, few_rows, newest_runs
from supervision.console.run_page.note_pages import RunNotes
from supervision.console.run_page.step_bar import step_bar
from supervision.console.shared import TONES, may_operate, person
from supervision.console.verb_forms import Verb, failed_names, failed_step, verbs_for
from supervision.desk import notes
from supervision.incidents import lifecycle
from supervision.insight import family, queries
from supervision.insight.filters import Filters
from supervision.insight.queries import NamedStep
from supervision.insight.waiting import why_waiting
from supervision.ledger import exchanges
from supervision.models import Alert, ApiRequest, Incident, Run, Signal, StepState
from supervision.models.labels import RUN_LABELS
from supervision.plans import personal
from supervision.postgres import db
from supervision.runtime.retold import retold
from supervision.states import FINAL_RUN_STATES, Direction, ProcessState, RunState
from supervision.telemetry import spans

EVENTS_SHOWN = 200
SIGNALS_SHOWN = 20  # the newest; each may have 64 kB


LABELS = {state.value: {"neutral": None}.get(tone, tone) for state, tone in TONES.items()}


def labelled(state: str) -> tuple[str, Any]:
    """A state with its words, for a column whose colours are `LABELS`."""
    return state, RUN_LABELS[RunState(state)]


class RunChangeList(BoundedChangeList):
    """Reads what the list says of the page's runs in one query each, and attaches it to the rows."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        if not self.multi_page:  # Django would ask for all rows again, and without the filters that the paginator knows alone
            self.result_list = self.paginator.page(1).object_list
        rows: list[Any] = list(self.result_list)
        runs = [self.model_admin.run_of(row) for row in rows]
        steps = queries.named_steps([run.pk for run in runs])
        because = why_waiting([run.pk for run in runs if run.finished_at is None])
        owners = notes.owners([run.key for run in runs])
        for row, run in zip(rows, runs, strict=True):
            row.shown_state = RunState(run.process_state)
            row.shown_owner, row.shown_because, row.shown_step = owners.get(run.key, ""), because.get(run.pk), steps.get(run.pk)


def requests_of(key: str) -> str:
    """The list of the API requests about this run; empty where none is recorded."""
    if not ApiRequest.objects.filter(order_key=key).exists():
        return ""
    return f"{reverse('admin:supervision_apirequest_changelist')}?{urlencode({'order': key})}"


class RunConsole(SavedViews, RunNotes):
    """An admin of runs, or of rows that have a run: a list with those in Error first, and a page for each with its verbs."""

    run_path = ""
    newest_first: Sequence[str] = ("-pk",)
    search_words = _("public id, error code or text")
    list_before_template = "admin/supervision/_above_list.html"
    actions = ["resubmit_selected", "cancel_selected"]
    list_filter = RUN_FILTERS
    filters = Filters()
    list_filter_submit = False
    one_line = True
    change_list_template = "admin/supervision/run_list.html"
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
        if queryset.model is not self.model:  # the page of what people have done
            return super().get_paginator(request, queryset, per_page, *args, **kwargs)
        state, page = f"{self.run_path}process_state", request.GET.get(PAGE_VAR, "1")
        page_end = per_page * (int(page) if page.isascii() and page.isdecimal() and len(page) < 6 else 1)
        values = getattr(request, "found_by", {})
        if values and self.filters.walks(values):
            rows: Any = WalkedRows(self.filters, values, state, plain=self._plain(request), page_end=page_end)
            return Paginator(rows, per_page)
        most = min(page_end + COUNTED_AHEAD, COUNTED_UP_TO)
        newest = newest_runs(request, self.filters, most)
        plain = self._plain(request)
        if newest is not None:
            queryset = self.filters.of_runs(plain, newest)
        rows = (
            FewRows(queryset, state, self.newest_first, plain=plain, most=COUNTED_UP_TO if newest is None else most)
            if newest is not None or few_rows(request, self.filters)
            else ErrorFirst(queryset, state, self.newest_first, page_end=page_end)
        )
        return Paginator(rows, per_page)

    def _plain(self, request: HttpRequest) -> QuerySet[Any]:
        """The list without filters and order."""
        plain: QuerySet[Any] = self.get_queryset(request).order_by()
        return plain.select_related(*self.list_select_related) if self.list_select_related else plain

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[RunChangeList]:
        return RunChangeList

    def ways(self) -> Sequence[Way]:
        """The ways in which the search field understands what is typed, the most particular first."""
        return list(ways(self.filters))

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> tuple[Any, bool]:
        if not search_term.strip():
            return queryset, False
        meant = understood(search_term, self.ways())
        request.understood, request.few_rows = meant, True  # type: ignore[attr-defined]  # for the list's page and paginator
        return self.filters.of_runs(queryset, meant.run_ids if meant else []), False

    @display(description=_("State"))
    def state(self, obj: Any) -> str:
        return format_html('<span class="sc-badge sc-tone-{}">{}</span>', TONES[obj.shown_state], RUN_LABELS[obj.shown_state])

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

    @display(description=_("Reason"), empty_value="")
    def error(self, obj: Any) -> str | None:
        failed = obj.shown_step is not None and obj.shown_step.process_state == ProcessState.ERROR
        text = obj.shown_step.last_error if failed else obj.shown_because
        return Truncator(retold(" ".join(text.split()))).chars(90) if text else None

    @action(description=_("Resubmit the failed steps of selected orders"), permissions=["resubmit"])
    def resubmit_selected(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        return self.confirm_bulk(request, queryset, "resubmit")

    @action(description=_("Cancel selected orders"), permissions=["cancel"])
    def cancel_selected(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        return self.confirm_bulk(request, queryset, "cancel")

    def has_resubmit_permission(self, request: HttpRequest) -> bool:
        """Whether this account may resubmit orders. Django calls it before it offers the action."""
        return rights.may(request.user, "resubmit")

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        """Whether this account may cancel orders. Django calls it before it offers the action."""
        return rights.may(request.user, "cancel")

    # --- Page ---------------------------------------------------------------------------------------------------------

    def get_urls(self) -> list[URLPattern]:
        name = f"{self.opts.app_label}_{self.opts.model_name}_of_run"
        of_run = path("of-run/<int:run_id>/", self.admin_site.admin_view(self.of_run_view), name=name)
        export = path("export/", self.admin_site.admin_view(self.export_view), name=f"{self.opts.app_label}_{self.opts.model_name}_export")
        return [of_run, export, *self.view_urls(), *self.verb_urls(), *self.note_urls(), *super().get_urls()]

    def known_parameters(self) -> Sequence[str]:
        return [*self.filters.fields, *OTHER_PARAMETERS]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        above = {
            "views": self.shown_views(request),
            "bulk": self.bulk_verbs(request),
            "export": self._address("export"),
            "may_export": self.has_operate_permission(request),
        }
        request.pages = True  # type: ignore[attr-defined]  # for the filters: a page is read, not the whole list
        page: HttpResponse = super().changelist_view(request, {**(extra_context or {}), "above": above})
        return page

    # --- File ---------------------------------------------------------------------------------------------------------

    def export_header(self) -> Sequence[Any]:
        """The first line of the list's file."""
        return [_("Public id"), _("State"), _("Step"), _("Reason"), _("Placed")]

    def export_cells(self, obj: Any, run: Run, step: NamedStep | None) -> Sequence[Any]:
        """One line of the list's file."""
        return [run.key, run.process_state, step and step.name, step and step.last_error, run.created_at]

    def export_view(self, request: HttpRequest) -> HttpResponseBase:
        """The filtered list as a file. Who took it, and with which filters, is in the admin's log."""
        if not self.has_operate_permission(request):
            raise PermissionDenied
        try:
            rows = self.get_changelist_instance(request).get_queryset(request).order_by()
        except IncorrectLookupParameters:
            return self._whole_list()
        said = view_query(request.GET, self.known_parameters())
        LogEntry.objects.create(
            user_id=person(request).pk, content_type=ContentType.objects.get_for_model(self.model), object_id="", action_flag=CHANGE,
            object_repr=str(_("List as a file")), change_message=said or str(_("all rows")),
        )  # fmt: skip
        headers = {"Content-Disposition": f'attachment; filename="{self.opts.model_name}s.csv"', "X-Content-Type-Options": "nosniff"}
        header = [str(word) for word in self.export_header()]  # now: the file is sent after this request's language has ended
        body = export.lines(header, rows, self.newest_first, self._export_portion)
        return StreamingHttpResponse(body, content_type="text/csv; charset=utf-8", headers=headers)

    def _export_portion(self, rows: Sequence[Any]) -> Iterator[Sequence[Any]]:
        runs = [self.run_of(row) for row in rows]
        steps = queries.named_steps([run.pk for run in runs])
        for row, run in zip(rows, runs, strict=True):
            yield self.export_cells(row, run, steps.get(run.pk))

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
        history, [[now]] = queries.timeline(run.pk), db.run("SELECT now()")
        shown = history if "all" in request.GET else history[-EVENTS_SHOWN:]
        return self.page(
            request, "run.html", title=str(obj), object=obj, original=obj, run=run,
            approvals=waiting.of_order(run.key), steps=personal.steps_shown(run.workflow, steps),
            state_label=RUN_LABELS[RunState(run.process_state)], tone=TONES[RunState(run.process_state)],
            facts=[(label, value) for label, value in (*self.facts(obj), (_("Trace"), _trace(run.key))) if value not in (None, "")],
            lines=self.lines(obj), failed=failed_step(run, steps), failed_names=failed_names(run, steps),
            waiting_because=why_waiting([run.pk])[run.pk],
            bar=step_bar(run, steps, history, now, exchanges.of(run.pk)),
            panels=[*self.panels(request, obj), self.notes_panel(request, obj)],
            machinery=[(label, value) for label, value in self.machinery(obj) if value not in (None, "")],
            signals=personal.signals_shown(run.workflow, Signal.objects.filter(run_key=run.key).order_by("-pk")[:SIGNALS_SHOWN]),
            family=family.of(run.key), requests_at=requests_of(run.key), timeline=shown, hidden_events=len(history) - len(shown),
            alerts=Alert.objects.filter(run=run, closed_at__isnull=True).order_by("-raised_at"),
            incident=Incident.objects.filter(pk__in=lifecycle.holding([run.pk]).values()).first(),
            final=run.process_state in FINAL_RUN_STATES, may_operate=self.has_operate_permission(request),
            may_acknowledge=rights.may(request.user, rights.INCIDENTS),
            verbs=self._verbs(request, run, obj), back=self._address("changelist"),
        )  # fmt: skip

    def _verbs(self, request: HttpRequest, run: Run, obj: Any) -> list[tuple[Verb, str]]:
        """The verbs that make sense now and that this account may do to the failed steps."""
        if not self.has_view_permission(request):
            return []
        agents = StepState.objects.filter(run=run, process_state=ProcessState.ERROR).values_list("agent", flat=True).distinct()
        at = list(agents) if not may_operate(request) else []
        verbs = [(verb, self._address("operate", obj.pk, verb.name)) for verb in verbs_for(run) if rights.may(request.user, verb.name, at)]
        pausing = pause_verb(run, self._address("change", obj.pk)) if rights.may(request.user, "pause") else None
        return [*verbs, pausing] if pausing else verbs


def _trace(key: str) -> str | None:
    """The id of the order's trace, as a link if there is a tool that shows traces."""
    link, trace = spans.link_to(key), spans.trace_of(key)
    return format_html('<a class="sc-link sc-break" href="{}" rel="noreferrer">{}</a>', link, trace) if link else trace
