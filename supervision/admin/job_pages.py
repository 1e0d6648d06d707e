"""Bulk jobs in the console: how far each is, what became of its orders, and the forms that stop it or let it go on."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Count
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext_lazy as _
from unfold.decorators import display

from supervision.approvals import rights
from supervision.console.bounded_lists import PageAdmin
from supervision.console.bulk.preview import in_words, money_in_words
from supervision.console.shared import person, run_address
from supervision.console.sidebar import SEES_JOBS
from supervision.console.verb_forms import ReasonForm, label_of
from supervision.errors import Refused
from supervision.insight import directory
from supervision.jobs import reading, steering
from supervision.jobs.acting import in_words as as_command
from supervision.models import Job, JobResult
from supervision.runtime.humanize import number

RESULTS_SHOWN = 100
TONES = {Job.State.RUNNING: "info", Job.State.STOPPED: "warning", Job.State.DONE: "success"}
OUTCOME_TONES = {"waiting": "neutral", "done": "success", "changed": "warning", "refused": "warning", "failed": "danger"}
AGAIN = "again"


@admin.register(Job)
class JobAdmin(PageAdmin):
    """The list of jobs, the newest first."""

    empty_means = _("No job has been started. A job does one verb to all orders that the filters of a list find.")
    seen_with = SEES_JOBS
    list_display = ["name", "standing", "progress", "started_by", "conditions", "age"]
    list_filter = [("state", admin.ChoicesFieldListFilter)]
    ordering = ["-started_at", "-id"]
    aged_from = "started_at"
    takes_posts = True

    @display(description=_("Job"))
    def name(self, obj: Job) -> str:
        return f"{obj.pk}: {label_of(obj.verb)}"

    @display(description=_("State"), label={"running": "info", "stopped": "warning", "done": "success"})
    def standing(self, obj: Job) -> tuple[str, Any]:
        return obj.state, obj.get_state_display()

    @display(description=_("Orders"))
    def progress(self, obj: Job) -> Any:
        words = {"position": number(obj.position), "total": number(obj.total), "failed": number(obj.failed)}
        return _("%(position)s of %(total)s, %(failed)s not done") % words

    @display(description=_("Which"))
    def conditions(self, obj: Job) -> str:
        return _in_words(obj)

    def show(self, request: HttpRequest, row: Any, /) -> HttpResponse:
        """One job with its progress and results; the form stops it, lets it go on, or ends it."""
        may_act = rights.may(request.user, row.verb)
        said = request.POST if request.method == "POST" else None
        form = ReasonForm(said)
        form.fields["reason"].help_text = _("Kept with your name.")
        if said is not None:
            if not may_act:
                raise PermissionDenied
            if form.is_valid() and self._act(request, row, said.get("verb", ""), form.cleaned_data["reason"]):
                return HttpResponseRedirect(request.get_full_path())
            row.refresh_from_db()
        chosen = request.GET.get("outcome", "")
        outcome = chosen if chosen in JobResult.Outcome.values else ""
        rows = reading.results(row, outcome=outcome, again=chosen == AGAIN)
        if not chosen:
            rows = rows.exclude(outcome=JobResult.Outcome.WAITING).order_by("-number")
        found: list[Any] = list(rows[: RESULTS_SHOWN + 1])
        names = directory.names(one.key for one in found)
        again = reading.in_error_again(row)
        return self.page(
            request, "job.html", title=f"{_('Job')} {row.pk}: {label_of(row.verb)}", object=row, original=row, job=row,
            tone=TONES[Job.State(row.state)], age=self.age(row), conditions=_in_words(row), left=row.total - row.position,
            percent=100 * row.position // max(row.total, 1), held=money_in_words(row.held), again=again,
            tallies=self._tallies(row, again, chosen), running=row.state == Job.State.RUNNING,
            results=[
                (one, names[one.key], OUTCOME_TONES[one.outcome], run_address(one.run_id) if one.now else "")
                for one in found[:RESULTS_SHOWN]
            ],
            more=len(found) > RESULTS_SHOWN, chosen=chosen, form=form if may_act and row.state != Job.State.DONE else None,
        )  # fmt: skip

    def _tallies(self, job: Job, again: int, chosen: str) -> list[tuple[str, Any, int, bool]]:
        """Each result with its words, how many orders have it, and whether the list shows it."""
        counts = dict(JobResult.objects.filter(job=job).values_list("outcome").annotate(Count("id")))
        words = [(value, label, counts.get(value, 0)) for value, label in JobResult.Outcome.choices]
        words.insert(2, (AGAIN, _("in Error again"), again))
        return [(value, label, count, value == chosen) for value, label, count in words if count or value == chosen]

    def _act(self, request: HttpRequest, job: Job, verb: str, reason: str) -> bool:
        """Stop it, let it go on, or end it; False if the verb is not known."""
        if verb not in ("stop", "resume", "end"):
            return False
        try:
            if verb == "stop":
                steering.stop(job.pk, by=person(request), reason=reason)
                messages.success(request, _("The job is stopped. What is done stays done."))
            elif verb == "end":
                steering.end(job.pk, by=person(request), reason=reason)
                messages.success(request, _("The job is ended. The orders that were left stay as they are."))
            else:
                steering.resume(job.pk, by=person(request), reason=reason)
                messages.success(request, _("The job goes on."))
        except Refused as refusal:
            messages.warning(request, str(refusal))
        return True


def _in_words(job: Job) -> str:
    """Which orders a job takes: its filters as the list of orders calls them."""
    said = [f"{label}: {value}" for label, value in in_words(directory.current().filters, job.filter)]
    return ", ".join(said) or as_command(job.filter)
