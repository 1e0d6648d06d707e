"""A verb for many orders: the page that shows what it would do, and the job that does it.

The orders are those of a list under its filters, or those that were selected on it one by one. GET shows; only POST starts the job.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import messages
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ERROR_FLAG
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from supervision.approvals import rights
from supervision.console.bounded_lists import PageAdmin
from supervision.console.bulk.preview import JobForm, found_more, groups, in_words, money_in_words
from supervision.console.lists.saved_views import view_query
from supervision.console.shared import person
from supervision.console.sidebar import SEES_JOBS
from supervision.console.verb_forms import BULK_LIMIT, BULK_VERBS, VERBS, BulkForm, OnceForm, Verb, as_word, failed_step, parts_of
from supervision.errors import Refused
from supervision.insight import queries
from supervision.insight.filters import Filters
from supervision.jobs import selection, steering
from supervision.models import Job, Run
from supervision.runtime.humanize import number
from supervision.states import RunState


class BulkPages(PageAdmin):
    """Adds the pages of verbs for many orders to an admin of runs, or of rows that have a run."""

    run_path: str
    filters: Filters

    def run_of(self, obj: Any) -> Run:
        """The run of a row of this admin."""
        raise NotImplementedError

    def known_parameters(self) -> Sequence[str]:
        """The parameters of the list's address that filter it."""
        raise NotImplementedError

    def caution_many(self, verb: str, shown: selection.Preview) -> str:
        """What the application warns of before this verb acts on these orders; empty if there is nothing."""
        return ""

    def money_at_stake(self, objects: Sequence[Any]) -> str:
        """The value of the chosen rows in words, if the application knows it."""
        return ""

    def bulk_urls(self) -> list[URLPattern]:
        """One address per verb."""
        name = f"{self.opts.app_label}_{self.opts.model_name}_bulk"
        return [path("bulk/<slug:verb>/", self.admin_site.admin_view(self.bulk_view), name=name)]

    def _address(self, page: str, *args: Any) -> str:
        return reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_{page}", args=args)

    def bulk_verbs(self, request: HttpRequest) -> list[tuple[Verb, str]]:
        """The verbs that this account may do to all orders of the filtered list, each with its page; none where nothing filters."""
        query = view_query(request.GET, self.known_parameters())
        if not query:
            return []
        return [(VERBS[name], f"{self._address('bulk', name)}?{query}") for name in BULK_VERBS if rights.may(request.user, name)]

    def bulk_view(self, request: HttpRequest, verb: str) -> HttpResponse:
        """Show what the verb would do to the orders of the filtered list (GET), or start the job that does it (POST)."""
        if not (rights.may(request.user, verb) and self.has_view_permission(request)):
            raise PermissionDenied
        if verb not in BULK_VERBS:
            raise Http404
        try:
            if (job := self._sent_before(request, verb)) is not None:
                return self._started(request, job)
            if "chosen" in request.POST:
                return self._start_chosen(request, VERBS[verb])
            return self._of_the_list(request, VERBS[verb])
        except Refused as refusal:
            messages.warning(request, str(refusal))
            return HttpResponseRedirect(self._list(request))
        except IncorrectLookupParameters:
            return self._whole_list()

    def _sent_before(self, request: HttpRequest, verb: str) -> Job | None:
        """The job that this form has started already. Its orders have changed since, so it is looked for first."""
        form = OnceForm(request.POST)
        form.is_valid()
        return steering.started(verb, form.cleaned_data.get("token", ""), by=person(request))

    def _whole_list(self) -> HttpResponse:
        """Where a page leads whose address has filters that the list does not know, as Django's page of the list does."""
        return HttpResponseRedirect(f"{self._address('changelist')}?{ERROR_FLAG}=1")

    def _list(self, request: HttpRequest) -> str:
        query = view_query(request.GET, self.known_parameters())
        return self._address("changelist") + (f"?{query}" if query else "")

    def _started(self, request: HttpRequest, job: Job) -> HttpResponse:
        words = {"number": job.pk, "total": number(job.total)}
        if job.state == Job.State.STOPPED:  # another operator has to approve it
            messages.warning(request, job.stop_reason)
        else:
            messages.success(request, _("Job %(number)s is started for %(total)s orders.") % words)
        sees = request.user.has_perm(SEES_JOBS)
        return HttpResponseRedirect(reverse("admin:supervision_job_change", args=[job.pk]) if sees else self._list(request))

    # --- All of a filtered list ---------------------------------------------------------------------------------------

    def _of_the_list(self, request: HttpRequest, verb: Verb) -> HttpResponse:
        said = {name: request.GET[name] for name in sorted(self.known_parameters()) if request.GET.get(name)}
        if term := request.GET.get("q", "").strip():
            said["q"] = term
        if not said:
            raise Refused(str(_("Filter the list first: a verb for every order is never meant.")), "filter_required")
        rows = self.get_changelist_instance(request).get_queryset(request).order_by()
        runs = rows.values_list(f"{self.run_path}pk", flat=True)
        chosen = selection.of_runs(runs, said.get("step", ""))
        shown = selection.preview(verb.name, chosen)
        if not shown.orders:
            raise Refused(str(_("No order that fits can be treated so now; nothing was started.")), "no_orders")
        form = JobForm(request.POST if request.method == "POST" else None, initial={"seen": shown.orders})
        more = form.is_valid() and found_more(form.cleaned_data["seen"], shown.orders)
        if form.is_valid() and not more:
            sent = form.cleaned_data
            job = steering.start_found(verb.name, chosen, said, by=person(request), reason=sent["reason"], token=sent["token"])
            return self._started(request, job)
        if more:
            form = JobForm(initial={"seen": shown.orders, "reason": form.cleaned_data["reason"]})
        return self.page(
            request, "bulk.html", 409 if more else 200, title=verb.label, verb=verb, count=shown.orders, left_out=shown.left_out,
            stake=money_in_words((amount, currency) for currency, amount in shown.held), groups=groups(shown),
            conditions=in_words(self.filters, said), caution=self.caution_many(verb.name, shown), more_now=more, form=form,
            action=f"{self._address('bulk', verb.name)}?{view_query(request.GET, self.known_parameters())}", back=self._list(request),
        )  # fmt: skip

    # --- Selected one by one ------------------------------------------------------------------------------------------

    def confirm_bulk(self, request: HttpRequest, queryset: Any, verb: str) -> HttpResponse | None:
        """The page between selecting rows and acting on them: it shows a fixed list of the selected rows."""
        query = view_query(request.GET, self.known_parameters())
        if request.POST.get("select_across") == "1":  # more than the page shows: all that fit
            return HttpResponseRedirect(f"{self._address('bulk', verb)}?{query}")  # nosemgrep: redirect-to-a-stranger
        in_error = queryset.filter(**{f"{self.run_path}process_state": RunState.ERROR}).order_by("pk")
        objects = list(in_error[: BULK_LIMIT + 1])
        if not objects:
            messages.warning(request, _("None of the selected orders is in Error; nothing was done."))
            return None
        return self._chosen_page(request, VERBS[verb], objects[:BULK_LIMIT], more=len(objects) > BULK_LIMIT)

    def _chosen_page(
        self, request: HttpRequest, verb: Verb, objects: Sequence[Any], *, more: bool = False, form: BulkForm | None = None
    ) -> HttpResponse:
        steps = queries.steps_of([self.run_of(obj).pk for obj in objects])
        rows = []
        for obj in objects:
            run = self.run_of(obj)
            rows.append((obj, run, failed_step(run, steps.get(run.pk, []))))
        chosen = " ".join(as_word(run.key, step) for _obj, run, step in rows)
        preview = selection.preview(verb.name, selection.of_runs([run.pk for _obj, run, _step in rows]))
        return self.page(
            request, "bulk.html", title=verb.label, verb=verb, rows=rows, count=len(rows), more=more, limit=BULK_LIMIT,
            form=form or BulkForm(initial={"chosen": chosen}), stake=self.money_at_stake(objects),
            caution=self.caution_many(verb.name, preview), action=self._address("bulk", verb.name), back=self._address("changelist"),
        )  # fmt: skip

    def _start_chosen(self, request: HttpRequest, verb: Verb) -> HttpResponse:
        form = BulkForm(request.POST)
        if form.is_valid():
            chosen, reason, token = (form.cleaned_data[name] for name in ("chosen", "reason", "token"))
            job = steering.start_chosen(verb.name, chosen, by=person(request), reason=reason, token=token)
            if changed := len(chosen) - job.total:
                words = ngettext("%(n)d changed meanwhile and was left alone.", "%(n)d changed meanwhile and were left alone.", changed)
                messages.warning(request, words % {"n": changed})
            return self._started(request, job)
        if form.has_error("chosen"):
            return HttpResponseRedirect(self._address("changelist"))
        keys = [parts_of(word)[0] for word in form.data["chosen"].split()[:BULK_LIMIT]]
        objects = list(self.get_queryset(request).filter(**{f"{self.run_path}key__in": keys}).order_by("pk"))
        return self._chosen_page(request, verb, objects, form=form)
