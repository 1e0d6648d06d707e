"""Django's pages that take a password, with the limits of `attempts`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from django.contrib.auth.views import PasswordResetConfirmView, PasswordResetView
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import render

from orders.identity import attempts, devices
from orders.identity.forms import ResetForm, refusal

View = Callable[..., HttpResponseBase]


def limited(view: View) -> View:
    """Count each password that a signed-in visitor enters on this page, and give it back if the page went on."""

    @functools.wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if request.method != "POST" or not request.user.is_authenticated:
            return view(request, *args, **kwargs)
        marked: Any = request
        marked.sign_in_try = done = attempts.begin_as(request, request.user)
        if done.wait:
            return render(request, "orders/account/too_many.html", {"refusal": refusal(done.wait)})  # `Identity` makes it a 429
        response = view(request, *args, **kwargs)
        if response.status_code in (201, 302):
            attempts.forgive(done)
            devices.remember(request, request.user)  # a new password has ended the browser's cookie
        return response

    return guarded


class Reset(PasswordResetView):
    """Ask for a mail with a link to choose a new password."""

    form_class = ResetForm

    def get_form_kwargs(self) -> dict[str, Any]:
        """The form counts by the client's network."""
        return {**super().get_form_kwargs(), "request": self.request}


class ResetConfirm(PasswordResetConfirmView):
    """Choose a new password. The reader of the mail can then sign in from this browser, even while strangers guess."""

    def form_valid(self, form: Any) -> Any:
        """The new password is saved; this browser is known."""
        response = super().form_valid(form)
        devices.remember(self.request, form.user)
        return response
