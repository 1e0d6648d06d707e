"""Notes and the owner of an order, on its page: two small forms, and the addresses that take them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.loader import render_to_string
from django.urls import URLPattern, path
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextareaWidget

from supervision.console.shared import LinesField, person
from supervision.console.verb_pages import RunVerbs
from supervision.desk import notes
from supervision.errors import Refused, UnknownRun
from supervision.operations.operator_verbs import LONGEST_NOTE


class OwnerForm(forms.Form):
    """Who looks after it."""

    owner = forms.ChoiceField(label=_("Owner"), required=False, widget=UnfoldAdminSelectWidget)

    def __init__(self, *args: Any, names: Sequence[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["owner"].choices = [("", _("no owner")), *((name, name) for name in names)]  # type: ignore[attr-defined]


class NoteForm(forms.Form):
    """What the next operator should know."""

    text = LinesField(
        label=_("Note"), max_length=LONGEST_NOTE, widget=UnfoldAdminTextareaWidget(attrs={"rows": 2}),
        help_text=_("What the next operator should know. Kept with your name and the time; it cannot be changed."),
    )  # fmt: skip


class RunNotes(RunVerbs):
    """Adds notes and the owner to the page of a run."""

    def note_urls(self) -> list[URLPattern]:
        """The address that takes both forms."""
        name = f"{self.opts.app_label}_{self.opts.model_name}_desk"
        return [path("<int:object_id>/desk/", self.admin_site.admin_view(self.desk_view), name=name)]

    def notes_panel(self, request: HttpRequest, obj: Any) -> SafeString:
        """The notes of this row's run, and the forms for those who may act."""
        key = self.run_of(obj).key
        owner = notes.owners([key]).get(key, "")
        may_act = self.has_operate_permission(request)
        context: dict[str, Any] = {"notes": notes.of(key), "owner": owner, "desk_at": self._address("desk", obj.pk)}
        if may_act:
            names = sorted({*notes.operators(), *filter(None, [owner])})
            initial = {"owner": owner or person(request).get_username()}
            typed = {"text": getattr(request, "refused_note", "")}
            context |= {"note_form": NoteForm(initial=typed), "owner_form": OwnerForm(names=names, initial=initial)}
        return render_to_string("admin/supervision/_notes.html", context, request)

    def desk_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        """Take a note or an owner, and return to the page. A note that is refused is shown again as it was typed."""
        obj = self.row(request, object_id)
        if request.method != "POST":  # a note that was refused has this address: its page brings itself up to date
            return HttpResponseRedirect(self._address("change", obj.pk))
        if not self.has_operate_permission(request):
            raise PermissionDenied
        key, said = self.run_of(obj).key, request.POST
        try:
            if "owner" in said:
                notes.assign(key, said["owner"], by=person(request))
                messages.success(request, _("The owner is noted."))
            else:
                notes.add(key, said.get("text", "").replace("\r\n", "\n"), by=person(request))
                messages.success(request, _("The note is added."))
        except (Refused, UnknownRun) as refusal:
            messages.error(request, str(refusal))
            if "owner" not in said:
                request.refused_note = said.get("text", "")  # type: ignore[attr-defined]
                answer = self.show(request, obj)
                answer.status_code = 400
                return answer
        return HttpResponseRedirect(f"{self._address('change', obj.pk)}#sc-notes")
