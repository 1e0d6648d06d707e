"""What a session has proved: whether it has passed a second factor, and when it was last proved who uses it.

A session whose account may enter the console, or has an operator's right without it, and that has not passed a second factor has
no rights, where CONSOLE_SECOND_FACTOR asks for one. The session's identifier changes with each proof.
"""

from __future__ import annotations

import time
from functools import cache
from types import SimpleNamespace
from typing import Any

from allauth.mfa.models import Authenticator
from django.conf import settings
from django.contrib.auth import SESSION_KEY, login
from django.contrib.auth.models import User
from django.contrib.auth.signals import user_logged_in
from django.contrib.sessions.exceptions import SessionInterrupted
from django.contrib.sessions.models import Session
from django.db import transaction
from django.dispatch import receiver
from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject

from orders import services
from orders.identity import devices, security_log
from sasproject.factors import OFF, REQUIRED

_KEPT = "proved"  # when, and whether by a second factor
CLOCKS_DIFFER_SECONDS = 60.0  # at most, between two machines that answer requests: a proof may seem to be so much younger than now
OWN_SECONDS = 900.0  # how old a proof may be where second factors themselves are changed, if REAUTHENTICATE_SECONDS is off


def enters_the_console(account: Any) -> bool:
    """Whether the account may enter the console."""
    return bool(account.is_authenticated and (account.is_staff or account.is_superuser))


def is_asked(account: Any) -> bool:
    """Whether a second factor is asked of this account at all: it enters the console, or has rights at the API and the shop's pages."""
    return enters_the_console(account) or bool(account.is_authenticated and services.is_staff(getattr(account, "unlimited", account)))


def has_factor(account: Any) -> bool:
    """Whether the account has an authenticator app or a passkey."""
    return bool(Authenticator.objects.filter(user_id=account.pk).exclude(type=Authenticator.Type.RECOVERY_CODES).exists())


def passed(request: HttpRequest) -> bool:
    """Whether this session has passed a second factor."""
    return bool(request.session.get(_KEPT, (0, False))[1])


def awaits(request: HttpRequest, account: Any) -> bool:
    """Whether this session still has to pass a second factor before it has the account's rights."""
    mode = settings.CONSOLE_SECOND_FACTOR
    if mode == OFF or SESSION_KEY not in request.session or passed(request) or not is_asked(account):
        return False
    return mode == REQUIRED or has_factor(account)


def is_old(request: HttpRequest, seconds: float | None) -> bool:
    """Whether the session's last proof is older than this. None: it never is.

    One from the future is too old, but for what the clocks of two machines differ by: it would be good for longer than it may be.
    """
    return seconds is not None and not -CLOCKS_DIFFER_SECONDS < time.time() - request.session.get(_KEPT, (0, False))[0] < seconds


def prove(request: HttpRequest, account: Any, *, second: bool, at: float | None = None) -> None:
    """Note that the session's user has proved who it is, just now or `at` this time; second: by a second factor.

    The session gets a new identifier.
    """
    second = second or passed(request)
    with transaction.atomic():
        _still_there(request)
        request.session.cycle_key()
    request.session[_KEPT] = [time.time() if at is None else at, second]
    security_log.note("proved", account=account.pk, request=request, second_factor="yes" if second else "no")
    if second:
        devices.remember(request, account, proved=True)


def sign_in(request: HttpRequest, account: Any, backend: str, *, second: bool, at: float | None = None) -> bool:
    """Sign this account in, with what has been proved; False if it was removed or deactivated meanwhile.

    Who was signed in here already keeps the secret of the forms (CSRF): a form in another tab may have asked for this sign-in.
    """
    again, secret = request.user.pk == account.pk, request.META.get("CSRF_COOKIE")
    with transaction.atomic():
        if not User.objects.select_for_update(no_key=True).filter(pk=account.pk, is_active=True):
            return False
        login(request, account, backend=backend)
    if again and secret:
        request.META["CSRF_COOKIE"] = secret
    prove(request, account, second=second, at=at)
    return True


def _still_there(request: HttpRequest) -> None:
    """Raise SessionInterrupted if another request has ended this session: a new identifier would begin it anew."""
    key = request.session.session_key
    if key is not None and not Session.objects.select_for_update().filter(session_key=key):
        raise SessionInterrupted("The session was ended by another request.")


def limited(request: HttpRequest, account: Any) -> Any:
    """This account of the session: without rights while it awaits a second factor; else it knows whether its last proof is old.

    Whether an account that does not enter the console has rights is looked up when a page asks for one: a shopper's costs no query.
    """
    if not account.is_authenticated or SESSION_KEY not in request.session:
        return account
    account.proof_is_old = lambda: is_old(request, settings.REAUTHENTICATE_SECONDS)
    if not enters_the_console(account):
        _limit_later(request, account)
        return account
    account.awaits_second_factor = awaits(request, account)
    if account.awaits_second_factor:
        account._group_names = frozenset()
        account.has_perm = account.has_module_perms = lambda *_args, **_kwargs: False
        account.get_all_permissions = lambda *_args, **_kwargs: set()
    return account


def _limit_later(request: HttpRequest, account: Any) -> None:
    has_perm, all_permissions = account.has_perm, account.get_all_permissions
    unlimited = SimpleNamespace(
        pk=account.pk, is_authenticated=True, is_staff=False, is_superuser=False, has_perm=has_perm, get_all_permissions=all_permissions
    )
    waits = cache(lambda: awaits(request, unlimited))
    account.unlimited = unlimited
    account.awaits_second_factor = SimpleLazyObject(waits)
    account.has_perm = lambda perm, obj=None: has_perm(perm, obj) and not waits()
    account.get_all_permissions = lambda obj=None: set() if waits() else all_permissions(obj)


@receiver(user_logged_in, dispatch_uid="orders.factors")
def _signed_in(request: Any, user: User, **kwargs: Any) -> None:
    """A password proves who it is, and is no second factor."""
    if request is not None and hasattr(request, "session"):
        request.session[_KEPT] = [time.time(), False]
