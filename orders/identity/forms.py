"""Sign-in forms that say when to try again, and the form that asks for a new password by mail."""

from __future__ import annotations

import math
from typing import Any

from django import forms
from django.contrib.auth.forms import AuthenticationForm, PasswordResetForm
from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from unfold.forms import AuthenticationForm as UnfoldAuthenticationForm

from orders.accounts.forms import SignInForm
from orders.accounts.mails import too_many
from orders.api.throttling import address_of
from orders.identity import reset_mail


def refusal(wait: float) -> str:
    """What to do after too many tries. wait: seconds until the next one is allowed."""
    minutes = max(1, math.ceil(wait / 60))
    return ngettext(
        "Too many passwords were tried. Try again in %(count)s minute, or choose a new password by mail.",
        "Too many passwords were tried. Try again in %(count)s minutes, or choose a new password by mail.",
        minutes,
    ) % {"count": minutes}


class _Limited(AuthenticationForm):
    def get_invalid_login_error(self) -> ValidationError:
        """The refusal, if there were too many tries; else the form's own error."""
        done = getattr(self.request, "sign_in_try", None)
        if done is not None and done.wait:
            return ValidationError(refusal(done.wait), code="too_many_tries")
        return super().get_invalid_login_error()


class ShopSignInForm(_Limited, SignInForm):
    """The shop's."""


class ConsoleSignInForm(_Limited, UnfoldAuthenticationForm):  # type: ignore[misc]
    """The console's."""


class ResetForm(PasswordResetForm):
    """Asks for a mail with a link. It sends few to one address, and few for one network."""

    def __init__(self, *args: Any, request: Any = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.request = request

    def clean(self) -> dict[str, Any]:
        """Count the mail."""
        cleaned = dict(super().clean() or {})
        if not self.errors and too_many(cleaned["email"], address_of(self.request)):
            message = _("We have sent several mails to this address already. Look into your mail, or try again in an hour.")
            raise forms.ValidationError(message, code="too_many_mails")
        return cleaned

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Queue the mail."""
        reset_mail.ask(self.cleaned_data["email"])
