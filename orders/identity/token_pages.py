"""The page where an account lists, makes and revokes its API tokens."""

from __future__ import annotations

from typing import Any, cast

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from orders.accounts.forms import OwnPasswordForm
from orders.accounts.own_forms import form_of
from orders.identity import tokens
from orders.identity.tables import NAME_LENGTH


class TokenForm(OwnPasswordForm):
    """A new token. It takes the password, because a token signs in for months."""

    name = forms.CharField(label=gettext_lazy("What is it for?"), max_length=NAME_LENGTH)
    scope = forms.ChoiceField(label=gettext_lazy("What may it do?"))
    days = forms.IntegerField(
        label=gettext_lazy("For how many days?"), min_value=1, max_value=tokens.MOST_DAYS, initial=lambda: settings.TOKEN_DAYS
    )
    field_order = ("name", "scope", "days", "password")

    def __init__(self, *args: Any, account: Any, **kwargs: Any) -> None:
        super().__init__(*args, account=account, **kwargs)
        cast(forms.ChoiceField, self.fields["scope"]).choices = list(tokens.scopes_for(account).items())

    def clean_name(self) -> str:
        """One line that is read in its order: administrators see it, too."""
        name = str(self.cleaned_data["name"])
        if not name.isprintable():
            raise forms.ValidationError(_("Control characters are not allowed."))
        return name

    def clean(self) -> dict[str, Any]:
        """Few tokens at a time."""
        if tokens.has_many(self.account):
            raise forms.ValidationError(_("You have %(count)s tokens. Revoke one first.") % {"count": tokens.MOST_TOKENS})
        return dict(super().clean() or {})


@login_required
@sensitive_post_parameters("password")
@never_cache
@require_http_methods(["GET", "POST"])
def own_tokens(request: HttpRequest) -> HttpResponse:
    """The account's tokens; a new one is shown once, in the answer that made it."""
    account: Any = request.user
    form = TokenForm(request.POST or None, account=account)
    made = ""
    if request.method == "POST" and form.is_valid():
        made = tokens.issue(account, **{name: form.cleaned_data[name] for name in ("name", "scope", "days")})
        form = TokenForm(account=account)
    facts = {"form": form, "made": made, "tokens": tokens.of(account), "now": timezone.now()}
    return render(request, "orders/account/tokens.html", facts, status=201 if made else 400 if form.errors else 200)


@form_of("orders:tokens")
def revoke_token(request: HttpRequest, key: str) -> HttpResponse:
    """End one of the account's tokens."""
    account: Any = request.user
    if tokens.revoke(account, key):
        messages.success(request, _("The token is revoked."))
    return redirect("orders:tokens")
