"""Addresses that take a form of an account's page, and show no page of their own."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods

View = Callable[..., HttpResponse]


def form_of(page: str) -> Callable[[View], View]:
    """A view that takes a form of this page, by POST, of an account that is signed in. page: the name of its URL.

    Any other way to the form's address leads to the page: a session that had ended is signed in again and goes on there, and so does
    the language that is changed on a refused form.
    """

    def decorate(view: View) -> View:
        @login_required
        @require_http_methods(["GET", "HEAD", "POST"])
        @wraps(view)
        def taken(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            return view(request, *args, **kwargs) if request.method == "POST" else redirect(page)

        return taken

    return decorate
