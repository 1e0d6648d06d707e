"""The pages where an account enrols authenticator apps and passkeys, removes them, and makes new recovery codes."""

from __future__ import annotations

from typing import Any

from allauth.mfa.models import Authenticator
from django.conf import settings
from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from orders.factors import codes, passkeys, proofs, telling, tries
from orders.factors.asking_again import wait_in_words
from orders.factors.pages import show
from orders.identity.attempts import forgive
from sasproject.factors import REQUIRED
from supervision.errors import ProofNeeded
from supervision.operations.audit_log import log

LONGEST_NAME = 60


def _turned_away(request: HttpRequest) -> HttpResponse | None:
    """Where the visitor has to go instead. Raises ProofNeeded where the last proof is old: these pages change who may sign in."""
    account: Any = request.user
    if not proofs.is_asked(account):
        return redirect("admin:login")
    if proofs.has_factor(account) and not proofs.passed(request):
        return redirect("factors:ask")
    if proofs.is_old(request, settings.REAUTHENTICATE_SECONDS or proofs.OWN_SECONDS):
        raise ProofNeeded("enrol")
    return None


@never_cache
@require_http_methods(["GET", "POST"])
def own(request: HttpRequest) -> HttpResponse:
    """The account's second factors: remove one, or make new recovery codes."""
    account: Any = request.user
    if not proofs.is_asked(account):
        return redirect("admin:login")
    mine = Authenticator.objects.filter(user_id=account.pk).exclude(type=Authenticator.Type.RECOVERY_CODES).order_by("pk")
    if not mine:
        return redirect("factors:enrol")
    if away := _turned_away(request):
        return away
    if request.method == "POST" and "new-codes" in request.POST:
        return _with_codes(request, codes.new_recovery_codes(account), "recovery codes made anew")
    if request.method == "POST":
        return _removed(request, account, request.POST.get("remove", ""))
    return show(
        request, "own.html", title=_("Your second factors"), mine=mine, left=codes.left(account),
        app=any(one.type == Authenticator.Type.TOTP for one in mine),
    )  # fmt: skip


def _removed(request: HttpRequest, account: Any, key: str) -> HttpResponse:
    with transaction.atomic():
        every = Authenticator.objects.select_for_update().filter(user_id=account.pk).exclude(type=Authenticator.Type.RECOVERY_CODES)
        mine = list(every.order_by("pk"))  # locked: two sessions may each remove one of the last two
        gone = next((one for one in mine if str(one.pk) == key), None)
        last = len(mine) == 1
        if gone is not None and last and settings.CONSOLE_SECOND_FACTOR == REQUIRED:
            messages.error(request, _("It is your only second factor, and your account needs one. Add another one first."))
        elif gone is not None:
            log(account, account, f"second factor removed: {gone.type}")
            telling.tell(account, telling.PASSKEY_REMOVED if gone.type == Authenticator.Type.WEBAUTHN else telling.APP_REMOVED)
            gone.delete()
            if last:
                Authenticator.objects.filter(user_id=account.pk).delete()  # recovery codes alone are no second factor
            messages.success(request, _("The second factor is removed."))
    return redirect("factors:own")


@never_cache
@require_http_methods(["GET", "POST"])
def enrol(request: HttpRequest) -> HttpResponse:
    """Enrol an authenticator app by a code that it shows, or a passkey."""
    account: Any = request.user
    if away := _turned_away(request):
        return away
    error, status = "", 200
    if request.method == "POST":
        error, status = _enrolled(request, account)
        if not error:
            return _after(request, account)
    secret = codes.new_secret(again=request.method == "POST" or "again" in request.GET)
    has_app = Authenticator.objects.filter(user_id=account.pk, type=Authenticator.Type.TOTP).exists()
    return show(
        request, "enrol.html", status, title=_("Add a second factor"), error=error, secret=secret, has_app=has_app,
        picture="" if has_app else codes.picture(account, secret), options=passkeys.options_to_enrol(account),
        first=not proofs.has_factor(account),
    )  # fmt: skip


def _enrolled(request: HttpRequest, account: Any) -> tuple[str, int]:
    done = tries.begin(request, account)
    if done.wait:
        return wait_in_words(done), 429
    if said := request.POST.get("credential", ""):
        typed = "".join(sign for sign in request.POST.get("name", "") if sign.isprintable())
        name = typed.strip()[:LONGEST_NAME] or _("Passkey")
        passkeys.go_on_enrolling(request)
        if not passkeys.enrol(account, said, name):
            return _("The passkey was not accepted. Try again."), 400
        log(account, account, "second factor enrolled: passkey")
    else:
        if not codes.enrol_app(request, account, codes.new_secret(again=True), request.POST.get("code", "")):
            return _("The code is not right. Look at the app, and enter the code that it shows now."), 400
        log(account, account, "second factor enrolled: authenticator app")
    forgive(done)
    return "", 200


def _after(request: HttpRequest, account: Any) -> HttpResponse:
    """The session has passed a second factor now. Recovery codes are made with the first one."""
    proofs.prove(request, account, second=True)
    if codes.left(account):
        messages.success(request, _("The second factor is added."))
        return redirect("factors:own")
    return _with_codes(request, codes.new_recovery_codes(account), "recovery codes made")


def _with_codes(request: HttpRequest, made: list[str], said: str) -> HttpResponse:
    account: Any = request.user
    log(account, account, said)
    return show(request, "recovery.html", 201, title=_("Recovery codes"), codes=made)


def account_links(request: HttpRequest) -> list[dict[str, Any]]:
    """The entries of the console's menu of the own account."""
    account: Any = request.user
    links = [{"title": _("Second factors"), "link": reverse("factors:own")}] if proofs.is_asked(account) else []
    if account.is_authenticated and account.has_usable_password():
        links.append({"title": _("Change password"), "link": reverse("admin:password_change")})
    return links
