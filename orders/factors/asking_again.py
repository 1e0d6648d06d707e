"""The page that asks again who it is, before a verb that moves money. It keeps the verb's form, and sends it again with the proof."""

from __future__ import annotations

import math
from typing import Any

from allauth.mfa.models import Authenticator
from django.contrib import admin
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from orders.factors import codes, passkeys, proofs, tries
from orders.identity.attempts import TooManyTries, Try, forgive
from orders.identity.forms import refusal
from orders.identity.hashing import HashingBusy
from orders.middleware import THEMED
from sasproject.factors import OIDC_PROVIDER

MARK = "proof-kind"
BACK = "proof-back"  # the page that asked was only looked at
ASKED = frozenset({MARK, BACK})  # a proof has come, or the page is looked at again after one
OURS = frozenset({MARK, BACK, "proof-password", "proof-code", "proof-credential", "csrfmiddlewaretoken"})


def wait_in_words(done: Try) -> str:
    """What to do after too many codes."""
    minutes = max(1, math.ceil(done.wait / 60))
    return ngettext(
        "Too many codes were tried. Try again in %(count)s minute.", "Too many codes were tried. Try again in %(count)s minutes.", minutes
    ) % {"count": minutes}


def home(request: HttpRequest) -> str:
    """The address of the console; for an account that the console refuses, that of its own page of the shop."""
    return reverse("orders:account" if request.user.is_authenticated and not request.user.is_staff else "admin:index")


def page(request: HttpRequest, error: str = "", status: int = 403) -> HttpResponse:
    """Ask for the password, a code or a passkey; the form that led here is in it."""
    account: Any = request.user
    kinds = set(Authenticator.objects.filter(user_id=account.pk).values_list("type", flat=True))
    webauthn = Authenticator.Type.WEBAUTHN in kinds
    facts = {
        **admin.site.each_context(request),
        "title": _("Is it still you?"),
        "error": error,
        "kept": [(name, value) for name, values in request.POST.lists() if name not in OURS for value in values],
        "action": request.get_full_path(),
        "home": home(request),
        "back": request.method == "GET" or BACK in request.POST,
        "by_password": account.has_usable_password(),
        "by_code": bool(kinds - {Authenticator.Type.WEBAUTHN}),
        "options": passkeys.options_to_prove(account) if webauthn else None,
        "oidc_provider": OIDC_PROVIDER,
        "by_provider": not account.has_usable_password() and not kinds,
    }
    response = render(request, "orders/factors/again.html", facts, status=status)
    response.headers["Content-Security-Policy"] = THEMED  # a page of the shop may have led here
    return response


def answered(request: HttpRequest) -> HttpResponse | None:
    """The proof that came with the form. Where it is right: None, and the form's own page goes on with it. Else ask again.

    A form without a proof comes from an account that has signed in again at the provider: its page looks at the session anew.
    """
    account: Any = request.user
    if not account.is_authenticated or not proofs.is_asked(account):
        return None
    if MARK not in request.POST:
        return HttpResponseRedirect(request.get_full_path())
    try:
        error = _wrong(request, account, request.POST[MARK])
    except TooManyTries as many:
        return page(request, refusal(many.wait), 429)
    except HashingBusy:
        return page(request, _("Many people sign in at this moment. Try again in a few seconds."), 503)
    if error:
        return page(request, error)
    return HttpResponseRedirect(request.get_full_path()) if BACK in request.POST else None


def _wrong(request: HttpRequest, account: Any, kind: str) -> str:
    """Why the proof does not hold; empty if it does. Then the session is proved anew."""
    if kind == "password":
        if not account.check_password(request.POST.get("proof-password", "")):
            return _("The password is not right.")
        proofs.prove(request, account, second=False)
        return ""
    done = tries.begin(request, account)
    if done.wait:
        return wait_in_words(done)
    if kind == "passkey":
        if not passkeys.is_right(account, request.POST.get("proof-credential", "")):
            return _("The passkey was not accepted. Try again.")
    elif not codes.is_right(account, request.POST.get("proof-code", "")):
        return _("The code is not right, or was used before.")
    forgive(done)
    proofs.prove(request, account, second=True)
    return ""
