"""The pages that ask for a second factor: after the password, and to sign in by a passkey alone."""

from __future__ import annotations

from typing import Any

from allauth.mfa.models import Authenticator
from django.conf import settings
from django.contrib import admin
from django.contrib.auth.backends import ModelBackend
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.shortcuts import redirect, render
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_protect
from django.views.decorators.http import require_http_methods, require_POST

from orders.factors import codes, passkeys, proofs, tries
from orders.factors.asking_again import home, wait_in_words
from orders.identity.attempts import forgive
from sasproject.factors import OIDC_PROVIDER

BACKEND = "django.contrib.auth.backends.ModelBackend"


def safe_next(request: HttpRequest, wanted: str | None) -> str:
    """This address, if it is one of this site; else `home`."""
    allowed = url_has_allowed_host_and_scheme(wanted, allowed_hosts={request.get_host()}, require_https=request.is_secure())
    return wanted if wanted and allowed else home(request)


def show(request: HttpRequest, template: str, status: int = 200, **facts: Any) -> HttpResponse:
    """One of these pages, in the console's theme before the sign-in."""
    account: Any = request.user
    facts = {**admin.site.each_context(request), "account": account, "home": home(request), **facts}
    return render(request, f"orders/factors/{template}", facts, status=status)


@never_cache
@require_http_methods(["GET", "POST"])
def ask(request: HttpRequest) -> HttpResponse:
    """Ask for a code or a passkey; who has neither enrols one."""
    account: Any = request.user
    wanted = safe_next(request, request.POST.get("next") or request.GET.get("next"))
    if not proofs.is_asked(account):
        return redirect("admin:login")
    if proofs.passed(request):
        return HttpResponseRedirect(wanted)
    if not proofs.has_factor(account):
        return redirect("factors:enrol")
    error, status = "", 200
    if request.method == "POST":
        error, status = _answer(request, account)
        if not error:
            return HttpResponseRedirect(wanted)
    kinds = set(Authenticator.objects.filter(user_id=account.pk).values_list("type", flat=True))
    return show(
        request, "ask.html", status, title=_("Second factor"), error=error, next=wanted,
        app=Authenticator.Type.TOTP in kinds, by_code=bool(kinds - {Authenticator.Type.WEBAUTHN}),
        options=passkeys.options_to_prove(account) if Authenticator.Type.WEBAUTHN in kinds else None,
    )  # fmt: skip


def _answer(request: HttpRequest, account: Any) -> tuple[str, int]:
    done = tries.begin(request, account)
    if done.wait:
        return wait_in_words(done), 429
    if said := request.POST.get("credential", ""):
        right, error = passkeys.is_right(account, said), _("The passkey was not accepted. Try again.")
    else:
        right, error = codes.is_right(account, request.POST.get("code", "")), _("The code is not right, or was used before.")
    if not right:
        return error, 400
    forgive(done)
    proofs.prove(request, account, second=True)
    return "", 200


@never_cache
@csrf_protect
@require_POST
def passkey_options(request: HttpRequest) -> HttpResponse:
    """The challenge for a passkey that signs in alone."""
    done = tries.begin_unnamed(request)
    if done.wait:
        return JsonResponse({"detail": wait_in_words(done)}, status=429)
    return JsonResponse(passkeys.options_to_prove(None))


@never_cache
@csrf_protect
@require_POST
def passkey_sign_in(request: HttpRequest) -> HttpResponse:
    """Sign in by a passkey alone: it verifies its user, so it counts as both factors."""
    done = tries.begin_unnamed(request)
    if done.wait:
        return show(request, "refused.html", 429, title=_("Not signed in"), why=wait_in_words(done))
    account = passkeys.owner(request.POST.get("credential", ""))
    known = account is not None and ModelBackend().user_can_authenticate(account) and proofs.is_asked(account)
    if not known or not proofs.sign_in(request, account, BACKEND, second=True):
        return show(request, "refused.html", 403, title=_("Not signed in"), why=_("The passkey was not accepted. Try again."))
    forgive(done)
    return HttpResponseRedirect(safe_next(request, request.POST.get("next")))


def sign_in_ways(request: HttpRequest) -> dict[str, Any]:
    """Context processor: the ways to sign in beside the password, on the console's sign-in page alone."""
    match = request.resolver_match
    if match is None or match.view_name != "admin:login":
        return {}
    providers = settings.SOCIALACCOUNT_PROVIDERS
    return {"sign_in_by": providers["openid_connect"]["APPS"][0]["name"] if providers else "", "oidc_provider": OIDC_PROVIDER}
