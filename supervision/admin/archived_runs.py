"""Archived orders in the admin: operators find them by id or number and see them like any other, but cannot change them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext_lazy as _
from unfold.decorators import display

from supervision.console.bounded_lists import PageAdmin
from supervision.console.run_lists import requests_of
from supervision.console.run_page.step_bar import step_bar
from supervision.console.shared import TONES
from supervision.insight import queries
from supervision.models import ArchivedRun
from supervision.models.labels import RUN_LABELS
from supervision.plans import personal
from supervision.states import RunState

LABELS = {RunState.PROCESSED.value: "success", RunState.CANCELLED.value: None}


@admin.register(ArchivedRun)
class ArchivedRunAdmin(PageAdmin):
    """Archived runs, the newest first."""

    empty_means = _("No order has been archived. Finished orders move here after the days that ARCHIVE_DAYS sets.")
    list_display = ["order", "state", "workflow", "created_at", "finished_at", "archived_at"]
    ordering = ["-run_id"]
    search_fields = ["=key"]
    found_by = ("key", "reference")
    search_help_text = _("order number or public id")

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).defer("body")

    @display(description=_("Order"))
    def order(self, obj: ArchivedRun) -> str:
        return str(obj)

    @display(description=_("State"), label=LABELS)
    def state(self, obj: ArchivedRun) -> tuple[str, Any]:
        return obj.process_state, RUN_LABELS[RunState(obj.process_state)]

    def show(self, request: HttpRequest, archived: ArchivedRun, /) -> HttpResponse:
        """Show the archived run with all its steps and events, as it was."""
        run, timeline = archived.run, queries.timeline(archived.run_id)
        steps = personal.steps_shown(run.workflow, queries.in_order(archived.steps))
        return self.page(
            request, "run.html", title=str(archived), object=archived, original=archived, run=run,
            steps=steps, timeline=timeline, bar=step_bar(run, steps, timeline, archived.finished_at),
            state_label=RUN_LABELS[RunState(run.process_state)], tone=TONES[RunState(run.process_state)],
            facts=list(_facts(archived)), final=True, requests_at=requests_of(run.key),
            back=reverse("admin:supervision_archivedrun_changelist"),
        )  # fmt: skip


def _facts(archived: ArchivedRun) -> Iterator[tuple[Any, Any]]:
    run = archived.run
    yield _("Reference"), archived.reference or "-"
    yield _("Public id"), archived.key
    yield _("Workflow"), f"{run.workflow} {run.version}"
    for name, value in archived.application.items():
        if isinstance(value, list):  # rows, such as an order's returns: those that have a number are named by it
            value = ", ".join(str(row["number"]) for row in value if isinstance(row, dict) and row.get("number"))
        if name != "reference" and isinstance(value, str | int) and value != "":
            yield name.replace("_", " ").capitalize(), value
    yield _("Created"), archived.created_at
    if run.cancel_requested_at:
        yield _("Cancel requested"), run.cancel_requested_at
    yield _("Finished"), archived.finished_at
    yield _("Archived"), archived.archived_at
