"""Django's pages for a new password: few mails with a link, and the password is saved in one commit with the mail that tells of it."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.contrib.auth.views import INTERNAL_RESET_SESSION_TOKEN, PasswordChangeView, PasswordResetConfirmView, PasswordResetView
from django.db import transaction

from orders.identity import devices
from orders.identity.forms import ResetForm


class Reset(PasswordResetView):
    """Ask for a mail with a link to choose a new password."""

    form_class = ResetForm

    def get_form_kwargs(self) -> dict[str, Any]:
        """The form counts by the client's network."""
        return {**super().get_form_kwargs(), "request": self.request}


class Change(PasswordChangeView):
    """Choose a new password while signed in."""

    template_name = "orders/password_change.html"

    @transaction.atomic
    def form_valid(self, form: Any) -> Any:
        """The new password is saved, with the mail to its owner."""
        return super().form_valid(form)


class ResetConfirm(PasswordResetConfirmView):
    """Choose a new password. The reader of the mail can then sign in from this browser, even while strangers guess."""

    @transaction.atomic
    def form_valid(self, form: Any) -> Any:
        """The new password is saved, with the mail to its owner; this browser is known.

        The link is good once: it is looked at again under the account's lock, because two readers may have sent their forms together.
        """
        account = User.objects.select_for_update(no_key=True).get(pk=form.user.pk)
        if not self.token_generator.check_token(account, self.request.session.get(INTERNAL_RESET_SESSION_TOKEN)):
            self.validlink = False
            return self.render_to_response(self.get_context_data())
        response = super().form_valid(form)
        devices.remember(self.request, form.user)
        return response
