"""The pages of an account: opening it, its mail address, and the overview.

An account is opened by a link in a mail, and what the page says is the same whether or not there is an account with the address. The
password waits in the visitor's session meanwhile. A visitor who opens the link in another browser chooses a password there, so no
password gets into an account that another person has confirmed.
"""

from __future__ import annotations

import secrets
from typing import Any

from django.contrib import messages
from django.contrib.auth import login
from django.contrib.auth.decorators import login_required
from django.contrib.auth.hashers import make_password
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import get_language
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_safe

from orders.accounts import book, mails, opening
from orders.accounts.forms import ChangeEmailForm, EmailForm, PasswordForm, SignUpForm
from orders.accounts.own_forms import form_of
from orders.accounts.signing_in import DJANGOS, is_verified
from orders.api.throttling import address_of
from orders.responses import private

_PENDING = "sign_up"


@sensitive_post_parameters()
@never_cache
@require_http_methods(["GET", "POST"])
def sign_up(request: HttpRequest) -> HttpResponse:
    """Ask for an account: a mail with a link is on its way."""
    following = _following(request)
    if request.user.is_authenticated:
        return redirect(following)
    form = SignUpForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        address, nonce = form.cleaned_data["email"], secrets.token_urlsafe(16)
        asked = mails.ask(mails.SIGN_UP, address, address_of(request), nonce=nonce, language=get_language())
        if asked:
            password = make_password(form.cleaned_data["password"])
            request.session[_PENDING] = {"email": address, "password": password, "nonce": nonce, "next": following}
            return redirect("orders:signup-sent")
        form.add_error(None, _("We have sent several mails to this address already. Look into your mail, or try again in an hour."))
    return render(request, "registration/signup.html", {"form": form, "next": following}, status=400 if form.errors else 200)


@never_cache
@require_safe
def sign_up_sent(request: HttpRequest) -> HttpResponse:
    """What to do now."""
    return render(request, "orders/account/sent.html", {"address": request.session.get(_PENDING, {}).get("email", "")})


@sensitive_post_parameters()
@require_http_methods(["GET", "POST"])
def sign_up_confirm(request: HttpRequest, token: str) -> HttpResponse:
    """Open the account that the mail's link is for. It takes a click: programs that look into mails open links, too."""
    facts = mails.facts_of(mails.SIGN_UP, token)
    if facts is None:
        return private(render(request, "orders/account/too_old.html", {"again": reverse("orders:signup")}, status=400))
    kept = request.session.get(_PENDING, {})
    here = kept if kept.get("nonce") == facts["nonce"] and kept.get("email") == facts["email"] else {}
    form = None if here else PasswordForm(request.POST or None, address=facts["email"])
    shown = {"form": form, "address": facts["email"]}
    if request.method == "GET" or (form is not None and not form.is_valid()):
        return private(render(request, "orders/account/open.html", shown, status=400 if form and form.errors else 200))
    password = here["password"] if form is None else make_password(form.cleaned_data["password"])
    account = opening.open_account(facts["email"], password)
    if account is None:
        messages.info(request, _("You have an account with this address already: sign in."))
        return redirect("login")
    request.session.pop(_PENDING, None)
    login(request, account, backend=DJANGOS)
    messages.success(request, _("Welcome. Your account is ready."))
    return redirect(here.get("next") or "orders:catalogue")


@login_required
@never_cache
@require_safe
def account(request: HttpRequest) -> HttpResponse:
    """The account: its mail address, the address book, the password."""
    return _account_page(request)


@form_of("orders:account")
@sensitive_post_parameters()
@never_cache
def change_email(request: HttpRequest) -> HttpResponse:
    """Send the link that confirms the present address, or another one. Another one takes the password."""
    data: Any = request.POST
    user: Any = request.user
    form: EmailForm = ChangeEmailForm(data, account=user) if "password" in data else EmailForm({"email": user.email})
    if not form.is_valid():
        return _account_page(request, form, status=400)
    address = form.cleaned_data["email"]
    asked = mails.ask(mails.CONFIRM, address, address_of(request), account=user.pk, language=get_language())
    if asked:
        messages.success(
            request, _("A mail is on its way to %(address)s. Open the link in it while you are signed in.") % {"address": address}
        )
    else:
        messages.warning(request, _("We have sent several mails to this address already. Look into your mail, or try again in an hour."))
    return redirect("orders:account")


@login_required
@require_http_methods(["GET", "POST"])
def email_confirm(request: HttpRequest, token: str) -> HttpResponse:
    """Record that the address is the account's. Only the account that asked may: the link alone shows nothing about the account."""
    facts = mails.facts_of(mails.CONFIRM, token)
    if facts is None or facts["account"] != request.user.pk:
        return private(render(request, "orders/account/too_old.html", {"again": reverse("orders:account")}, status=400))
    if request.method == "GET":
        return private(render(request, "orders/account/confirm.html", {"address": facts["email"]}))
    if opening.verify(facts["account"], facts["email"]):
        messages.success(request, _("Your address is confirmed."))
    else:
        messages.error(request, _("This address belongs to another account. Sign in to that one, or choose another address."))
    return redirect("orders:account")


def _account_page(request: HttpRequest, form: EmailForm | None = None, status: int = 200) -> HttpResponse:
    user: Any = request.user
    facts = {
        "form": form if isinstance(form, ChangeEmailForm) else ChangeEmailForm(account=user),
        "verified": is_verified(user),
        "addresses": book.addresses(user),
    }
    return render(request, "orders/account/account.html", facts, status=status)


def _following(request: HttpRequest) -> str:
    """The page to go on with, if it is one of ours."""
    following = request.POST.get("next") or request.GET.get("next") or ""
    ours = url_has_allowed_host_and_scheme(following, {request.get_host()}, require_https=request.is_secure())
    return following if ours else reverse("orders:catalogue")
