"""Buttons on the page of one row, such as "Deliver again": only a POST acts, only for who may, and it leads back to a page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.core.exceptions import PermissionDenied
from django.db.models import Model
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html


def row_button(
    admin: Any, name: str, act: Callable[[HttpRequest, Any], Model | None], *, allowed: Callable[[HttpRequest], bool]
) -> URLPattern:
    """The address of a button of this admin: `act` gets the row, and may return another row whose page is shown then."""

    def view(request: HttpRequest, pk: int) -> HttpResponse:
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if not allowed(request):
            raise PermissionDenied
        row = get_object_or_404(admin.model, pk=pk)
        return HttpResponseRedirect(address_of("change", act(request, row) or row))

    pattern: URLPattern = path(
        f"<int:pk>/{name}/", admin.admin_site.admin_view(view), name=f"{admin.opts.app_label}_{admin.opts.model_name}_{name}"
    )
    return pattern


def button_of(name: str, row: Model, words: Any) -> str:
    """The button as HTML, in the form of the row's page, which has the token against forged requests."""
    html = '<button class="sc-button" formaction="{}" formmethod="post" formnovalidate>{}</button>'
    return format_html(html, address_of(name, row), words)


def address_of(name: str, row: Model) -> str:
    """The address of this button of the row, or of another page of it."""
    return reverse(f"admin:{row._meta.app_label}_{row._meta.model_name}_{name}", args=[row.pk])
