"""Cached answers of services in the admin: how old each is, and an action that has them fetched anew."""

from __future__ import annotations

import json
from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.text import Truncator
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext
from unfold.decorators import action, display

from supervision.console.bounded_lists import ReadOnlyAdmin
from supervision.console.shared import may_operate, since
from supervision.governance import response_cache
from supervision.models import CachedResult
from supervision.runtime.humanize import age_in_words


@admin.register(CachedResult)
class CachedResultAdmin(ReadOnlyAdmin):
    """Answers of services, kept so that pages need not wait for the services."""

    list_display = ["key", "cache", "answer", "age", "refresh_at", "expires_at", "last_error"]
    list_filter = [("cache", admin.AllValuesFieldListFilter)]
    ordering = ["cache", "key"]
    sortable_by = ()
    actions = ["forget_selected"]

    def has_operate_permission(self, request: HttpRequest) -> bool:
        return may_operate(request)

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).annotate(console_age=since("fetched_at"))

    @display(description=_("Answer"), empty_value="")
    def answer(self, obj: CachedResult) -> str:
        return Truncator(json.dumps(obj.value, ensure_ascii=False)).chars(60) if obj.fetched_at else ""

    @display(description=_("Age"))
    def age(self, obj: Any) -> str:
        return age_in_words(obj.console_age)

    @action(description=_("Forget the selected answers: they are fetched anew"), permissions=["operate"])
    def forget_selected(self, request: HttpRequest, queryset: QuerySet[CachedResult]) -> None:
        done = response_cache.forget([(row.cache, row.key) for row in queryset])
        messages.success(request, ngettext("%(n)d answer was forgotten.", "%(n)d answers were forgotten.", done) % {"n": done})
