"""Django's pages for a new password by mail: few mails, and the reader of the mail can sign in from that browser."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.views import PasswordResetConfirmView, PasswordResetView

from orders.identity import devices
from orders.identity.forms import ResetForm


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
