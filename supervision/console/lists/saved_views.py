"""Saved views of a list: each person's own, and shared ones, which operators make for all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.contrib import messages
from django.contrib.admin.views.main import SEARCH_VAR
from django.core.exceptions import PermissionDenied
from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect, QueryDict
from django.shortcuts import get_object_or_404
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext_lazy as _

from supervision.console.shared import may_operate, person
from supervision.models import SavedView

MOST, LONGEST_NAME, LONGEST_QUERY = 50, 60, 2_000


class ViewForm(forms.Form):
    """The name of a view, whether it is for all, and the filters of the page that it was saved on."""

    name = forms.CharField(max_length=LONGEST_NAME)
    shared = forms.BooleanField(required=False)
    query = forms.CharField(max_length=LONGEST_QUERY, required=False)

    def clean_name(self) -> str:
        """One line that is read in its order: without control characters, and without those that turn the direction of text."""
        name = str(self.cleaned_data["name"])
        if not name.isprintable():
            raise forms.ValidationError(_("Control characters are not allowed."))
        return name


class SavedViews:
    """Mixed into the admin of a list: saves, renames and deletes views, and shows their links above the list."""

    opts: Any
    admin_site: Any
    has_view_permission: Callable[..., bool]

    def view_urls(self) -> list[URLPattern]:
        """The addresses that save and change a view; each takes a POST."""
        prefix, guard = f"{self.opts.app_label}_{self.opts.model_name}_view", self.admin_site.admin_view
        return [
            path("views/save/", guard(self.save_view), name=f"{prefix}_save"),
            path("views/<int:view_id>/rename/", guard(self.rename_view), name=f"{prefix}_rename"),
            path("views/<int:view_id>/delete/", guard(self.delete_saved_view), name=f"{prefix}_delete"),
        ]

    def saved_views(self, request: HttpRequest) -> QuerySet[SavedView]:
        """The views that this account sees: the shared ones first."""
        mine = SavedView.objects.filter(of=self.opts.label_lower).filter(Q(shared=True) | Q(owner_id=person(request).pk))
        return mine.order_by("-shared", "name")[: 2 * MOST]

    def shown_views(self, request: HttpRequest) -> dict[str, Any]:
        """For the list's page: its views, the one that is open, and whether this account may change that and share others."""
        query, may_share = view_query(request.GET, self.known_parameters()), may_operate(request)
        views = list(self.saved_views(request))
        for view in views:
            view.is_open = view.query == query != ""  # type: ignore[attr-defined]
            view.may_change = may_share if view.shared else True  # type: ignore[attr-defined]
        return {"saved": views, "query": query, "may_share": may_share, "open": next((one for one in views if one.is_open), None)}  # type: ignore[attr-defined]

    def known_parameters(self) -> Sequence[str]:
        """The parameters of the list's address that a view keeps."""
        raise NotImplementedError

    def save_view(self, request: HttpRequest) -> HttpResponse:
        """Keep the filters of the page under a name."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if not self.has_view_permission(request):
            raise PermissionDenied
        form = ViewForm(request.POST)
        query = view_query(QueryDict(request.POST.get("query", "")[:LONGEST_QUERY]), self.known_parameters())
        if not form.is_valid() or not query:
            messages.error(request, _("A view needs a name of at most %(n)d characters, and a filter.") % {"n": LONGEST_NAME})
            return self._back(query)
        shared = form.cleaned_data["shared"]
        if shared and not may_operate(request):
            raise PermissionDenied
        theirs = SavedView.objects.filter(of=self.opts.label_lower, shared=shared)
        if (theirs if shared else theirs.filter(owner_id=person(request).pk)).count() >= MOST:
            messages.error(request, _("There are %(n)d views already: delete one first.") % {"n": MOST})
            return self._back(query)
        view = SavedView(of=self.opts.label_lower, name=form.cleaned_data["name"], query=query, owner_id=person(request).pk, shared=shared)
        if self._kept(request, view):
            messages.success(request, _("The view “%(name)s” is saved.") % {"name": view.name})
        return self._back(query)

    def rename_view(self, request: HttpRequest, view_id: int) -> HttpResponse:
        """Give a view another name."""
        view = self._to_change(request, view_id)
        if isinstance(view, HttpResponse):
            return view
        form = ViewForm(request.POST)
        if not form.is_valid():
            messages.error(request, _("A view needs a name of at most %(n)d characters, and a filter.") % {"n": LONGEST_NAME})
            return self._back(view.query)
        view.name = form.cleaned_data["name"]
        if self._kept(request, view):
            messages.success(request, _("The view is now called “%(name)s”.") % {"name": view.name})
        return self._back(view.query)

    def delete_saved_view(self, request: HttpRequest, view_id: int) -> HttpResponse:
        """Delete a view; the orders stay as they are."""
        view = self._to_change(request, view_id)
        if isinstance(view, HttpResponse):
            return view
        view.delete()
        messages.success(request, _("The view “%(name)s” is deleted.") % {"name": view.name})
        return self._back("")

    def _to_change(self, request: HttpRequest, view_id: int) -> SavedView | HttpResponse:
        """The view, if this account may change it: its own; a shared one if it may operate."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if not self.has_view_permission(request):
            raise PermissionDenied
        view = get_object_or_404(SavedView, pk=view_id, of=self.opts.label_lower)
        if not (may_operate(request) if view.shared else view.owner_id == person(request).pk):
            raise PermissionDenied
        return view

    def _kept(self, request: HttpRequest, view: SavedView) -> bool:
        try:
            with transaction.atomic():
                view.save()
        except IntegrityError:
            messages.error(request, _("There is a view “%(name)s” already.") % {"name": view.name})
            return False
        return True

    def _back(self, query: str) -> HttpResponseRedirect:
        address = reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_changelist")
        return HttpResponseRedirect(f"{address}?{query}" if query else address)


def view_query(given: QueryDict, known: Sequence[str]) -> str:
    """The filters among these parameters, in one order, as an address writes them."""
    return urlencode([(name, given[name]) for name in sorted({*known, SEARCH_VAR}) if given.get(name)])
