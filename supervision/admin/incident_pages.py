"""Incidents in the console: open and closed ones, the orders that they hold, and acknowledgement with a reason."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import F
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.text import Truncator
from django.utils.translation import gettext_lazy as _
from unfold.decorators import display

from supervision.approvals import rights
from supervision.console.bounded_lists import OpenFilter, PageAdmin
from supervision.console.incident_rows import way_out
from supervision.console.run_page.note_pages import NoteForm, OwnerForm
from supervision.console.shared import list_address, person, run_address
from supervision.console.verb_forms import ReasonForm
from supervision.desk import notes
from supervision.errors import Refused
from supervision.incidents import lifecycle, standing
from supervision.insight import directory
from supervision.models import Incident, IncidentNote, Resource, Run
from supervision.operations import operator_verbs
from supervision.outbox.incident_mail import amounts
from supervision.runtime.humanize import age_in_words
from supervision.runtime.retold import retold

ORDERS_SHOWN, NOTES_SHOWN = 100, 100
TONES = {"info": "info", "warning": "warning", "critical": "danger"}


@admin.register(Incident)
class IncidentAdmin(PageAdmin):
    """The list of incidents, the open ones first."""

    empty_means = _("No incident: nothing holds orders up.")
    list_display = ["what", "grade", "standing", "holds", "kind", "owner", "acknowledgement"]
    list_filter = [OpenFilter, ("severity", admin.ChoicesFieldListFilter), ("kind", admin.AllValuesFieldListFilter)]
    ordering = [F("closed_at").desc(nulls_first=True), "-opened_at"]
    aged_from = "opened_at"
    takes_posts = True

    @display(description=_("What"))
    def what(self, obj: Incident) -> str:
        return Truncator(retold(obj.title)).chars(100)

    @display(description=_("Severity"), label={"info": "info", "warning": "warning", "critical": "danger"})
    def grade(self, obj: Incident) -> tuple[str, Any]:
        return obj.severity, obj.get_severity_display()

    @display(description=_("State"))
    def standing(self, obj: Any) -> Any:
        if obj.closed_at is None:
            return _("open for %(age)s") % {"age": age_in_words(obj.console_age)}
        return _("closed")

    @display(description=_("Orders"), empty_value="")
    def holds(self, obj: Incident) -> int | None:
        return obj.orders or None

    @display(description=_("Acknowledged by"), empty_value="")
    def acknowledgement(self, obj: Incident) -> str | None:
        return obj.acknowledged_by or None

    def show(self, request: HttpRequest, row: Any, /) -> HttpResponse:
        """One incident with the orders that it holds and its notes; while it is open, the forms of who looks after it."""
        may_act = rights.may(request.user, rights.INCIDENTS) and row.closed_at is None
        said = request.POST if request.method == "POST" else None
        verb = said.get("verb", "acknowledge") if said is not None else ""
        form = ReasonForm(said if verb == "acknowledge" else None)
        form.fields["reason"].help_text = (
            _("What was done about it. Kept with your name; the incident is closed.")
            if row.kind in standing.kinds
            else _("Who handles it and how. Kept with your name; the incident stays open until its cause is gone.")
        )
        owner = OwnerForm(
            said if verb == "assign" else None, names=notes.operators(), initial={"owner": row.owner or person(request).get_username()}
        )
        note = NoteForm(said if verb == "note" else None)
        if said is not None:
            if not rights.may(request.user, rights.INCIDENTS):
                raise PermissionDenied
            if self._act(request, row, {"acknowledge": form, "assign": owner, "note": note}.get(verb)):
                return HttpResponseRedirect(request.path)
        runs = lifecycle.runs_of(row.kind, row.cause) if row.closed_at is None else []
        shown = list(Run.objects.filter(pk__in=runs[:ORDERS_SHOWN]).order_by("pk"))
        names = directory.names(run.key for run in shown)
        every = list_address(incident=row.pk)
        way = way_out(row, dict(Resource.objects.filter(name=row.resource).values_list("name", "pk"))) if may_act else None
        return self.page(
            request, "incident.html", title=retold(row.title), object=row, original=row, incident=row,
            tone=TONES.get(row.severity, "neutral"), age=self.age(row),
            held=amounts(lifecycle.held(runs)), orders=[(run, names[run.key], run_address(run.pk)) for run in shown],
            more=max(0, len(runs) - ORDERS_SHOWN), form=form if may_act and row.acknowledged_at is None else None,
            owner=owner if may_act else None, note=note if may_act or note.is_bound else None,
            notes=IncidentNote.objects.filter(incident=row).order_by("-pk")[:NOTES_SHOWN], all_orders=every,
            ways=_ways(way, (str(_("List its orders")), every) if shown else None),
        )  # fmt: skip

    def _act(self, request: HttpRequest, row: Incident, form: Any) -> bool:
        """Do what the form asks for; False if it has to be shown again."""
        if form is None or not form.is_valid():
            return form is None
        by, said = person(request), form.cleaned_data
        try:
            if "owner" in said:
                operator_verbs.assign_incident(row.pk, said["owner"], by=by)
                done = _("The owner is noted.")
            elif "text" in said:
                operator_verbs.note_incident(row.pk, said["text"], by=by)
                done = _("The note is added.")
            else:
                operator_verbs.acknowledge_incident(row.pk, by=by, reason=said["reason"])
                done = _("The incident is acknowledged.")
        except Refused as refusal:
            messages.warning(request, str(refusal))
            return "text" not in said  # a note is shown again as it was typed
        else:
            messages.success(request, done)
        return True


def _ways(*found: tuple[str, str] | None) -> list[tuple[str, str]]:
    """The buttons of an incident with their addresses, each address once."""
    given = [way for way in found if way is not None]
    return [way for number, way in enumerate(given) if way[1] not in [earlier[1] for earlier in given[:number]]]
