"""Cached answers of services in the admin: how old each is, and an action that has them fetched anew."""

from __future__ import annotations

import json

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.text import Truncator
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext
from unfold.decorators import action, display

from supervision.console.bounded_lists import ReadOnlyAdmin
from supervision.governance import response_cache
from supervision.models import CachedResult


@admin.register(CachedResult)
class CachedResultAdmin(ReadOnlyAdmin):
    """Answers of services, kept so that pages need not wait for the services."""

    empty_means = _("No result is cached: no agent that caches its answers has been asked.")
    list_display = ["key", "cache", "answer", "age", "refresh_at", "expires_at", "last_error"]
    list_filter = [("cache", admin.AllValuesFieldListFilter)]
    ordering = ["cache", "key"]
    actions = ["forget_selected"]
    aged_from = "fetched_at"

    @display(description=_("Answer"), empty_value="")
    def answer(self, obj: CachedResult) -> str:
        return Truncator(json.dumps(obj.value, ensure_ascii=False)).chars(60) if obj.fetched_at else ""

    @action(description=_("Forget the selected answers: they are fetched anew"), permissions=["operate"])
    def forget_selected(self, request: HttpRequest, queryset: QuerySet[CachedResult]) -> None:
        done = response_cache.forget([(row.cache, row.key) for row in queryset])
        messages.success(request, ngettext("%(n)d answer was forgotten.", "%(n)d answers were forgotten.", done) % {"n": done})
