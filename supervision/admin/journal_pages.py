"""The journal in the admin: waiting entries, writers, files with their lengths. Operators download the acknowledged part."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponseBase, HttpResponseRedirect, StreamingHttpResponse
from django.template.defaultfilters import filesizeformat
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.text import Truncator
from django.utils.translation import gettext_lazy as _
from unfold.decorators import display

from supervision import conf
from supervision.console.bounded_lists import ReadOnlyAdmin
from supervision.console.shared import may_operate
from supervision.journal import verify
from supervision.models import JournalEntry, JournalFile

PIECE = 65_536


class FateFilter(admin.SimpleListFilter):
    """Filters entries by their state."""

    title, parameter_name = _("fate"), "fate"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [("waiting", _("Waiting")), ("failed", _("Failed")), ("written", _("Written"))]

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        match self.value():
            case "waiting":
                return queryset.filter(written_at__isnull=True, failed_at__isnull=True)
            case "failed":
                return queryset.filter(failed_at__isnull=False)
            case "written":
                return queryset.filter(written_at__isnull=False)
        return queryset


@admin.register(JournalFile)
class JournalFileAdmin(ReadOnlyAdmin):
    """The files. Above them, per key: the waiting entries, the writer, the last error."""

    empty_means = _("No journal file has been written yet.")
    list_display = ["path", "kind", "entries", "size", "opened_at", "closed_at", "machine", "download"]
    list_display_links = None
    list_filter = [("event_type", admin.AllValuesFieldListFilter)]
    list_before_template = "admin/supervision/journal_status.html"
    ordering = ["-pk"]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponseBase:
        page: HttpResponseBase = super().changelist_view(request, {**(extra_context or {}), "journal": verify.status()})
        return page

    @display(description=_("Event"))
    def kind(self, obj: JournalFile) -> str:
        return obj.event_type

    @display(description=_("Acknowledged"))
    def size(self, obj: JournalFile) -> str:
        return filesizeformat(obj.length)

    @display(description=_("Machine"))
    def machine(self, obj: JournalFile) -> str:
        return obj.host.partition("/")[0]

    @display(description=_("Download"))
    def download(self, obj: JournalFile) -> str:
        if not obj.length:
            return ""
        address = reverse("admin:supervision_journalfile_download", args=[obj.pk])
        return format_html('<a class="sc-link" href="{}">{}</a>', address, _("Download"))

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.download_view)
        return [path("<int:object_id>/download/", view, name="supervision_journalfile_download"), *super().get_urls()]

    def download_view(self, request: HttpRequest, object_id: int) -> HttpResponseBase:
        """The file up to its acknowledged length, if it is on this machine."""
        if not (may_operate(request) and self.has_view_permission(request)):
            raise PermissionDenied
        file = JournalFile.objects.filter(pk=object_id).first()
        if file is None:
            raise Http404
        place = conf.get().journal_dir / file.path
        if not place.is_file() or place.stat().st_size < file.length:
            facts = {"path": file.path, "host": file.host.partition("/")[0]}
            messages.error(request, _("%(path)s is not on this machine: fetch it from %(host)s.") % facts)
            return HttpResponseRedirect(reverse("admin:supervision_journalfile_changelist"))
        headers = {
            "Content-Disposition": f'attachment; filename="{place.name}"',
            "Content-Length": str(file.length),
            "X-Content-Type-Options": "nosniff",
        }
        return StreamingHttpResponse(_pieces(place, file.length), content_type="text/csv; charset=utf-8; header=present", headers=headers)


def _pieces(place: Path, length: int) -> Iterator[bytes]:
    with place.open("rb") as opened:
        while length > 0 and (piece := opened.read(min(PIECE, length))):
            length -= len(piece)
            yield piece


@admin.register(JournalEntry)
class JournalEntryAdmin(ReadOnlyAdmin):
    """Events: those that wait to be written, those in files and those that failed."""

    empty_means = _("No journal entry: no step has written one.")
    list_display = ["event_id", "event_type", "fate", "appended_at", "settled_at", "trouble"]
    list_filter = [FateFilter]
    ordering = ["-pk"]
    search_fields = ["=event_id"]
    found_by = ("event_id",)
    search_help_text = _("event id")

    @display(description=_("Fate"), label={"written": "success", "failed": "danger", "waiting": "warning"})
    def fate(self, obj: JournalEntry) -> tuple[str, Any]:
        if obj.written_at:
            return "written", _("written")
        return ("failed", _("failed")) if obj.failed_at else ("waiting", _("waiting"))

    @display(description=_("Settled"), empty_value="")
    def settled_at(self, obj: JournalEntry) -> Any:
        return obj.written_at or obj.failed_at

    @display(description=_("Error"), empty_value="")
    def trouble(self, obj: JournalEntry) -> str | None:
        return Truncator(obj.error).chars(80) if obj.error else None
