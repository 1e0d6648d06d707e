"""The logger `security`: who signed in, who was refused, and what belongs to an account was made, changed or ended.

A line has numbers, addresses and words of our own, and nothing that a visitor typed: no names, no mail addresses, no secrets. So
no visitor can forge a line, and the log needs no erasure.
"""

from __future__ import annotations

import logging
from typing import Any

from allauth.mfa.models import Authenticator
from django.contrib.auth.models import User
from django.contrib.auth.signals import user_logged_in, user_logged_out, user_login_failed
from django.db.models.signals import post_delete, post_save
from django.dispatch import receiver
from django.http import HttpResponseBase
from django.utils.functional import SimpleLazyObject, empty
from knox.models import AuthToken

from orders.api.throttling import address_of

log = logging.getLogger("security")

DENIED = (401, 403, 429)


def note(event: str, *, account: int | None = None, request: Any = None, **facts: Any) -> None:
    """Write one line. event: a word of ours. facts: further words or numbers of ours, never something that a visitor typed."""
    address = address_of(request).translate(_UNSAFE) if getattr(request, "META", None) else ""
    said = {"event": event, "account": account, "address": address or None, **facts}
    log.info("%s", " ".join(f"{name}={'-' if value is None else value}" for name, value in said.items()))


_UNSAFE = {code: "?" for code in range(256) if not (chr(code).isascii() and (chr(code).isalnum() or chr(code) in ".:/"))}


def denied(request: Any, response: HttpResponseBase) -> None:
    """Note an answer that refused something. Of the path, the pattern of our own that it fits; its ids and tokens are left out."""
    if response.status_code in DENIED:
        place = getattr(request, "resolver_match", None)
        route = f"/{place.route}" if place else None
        note("denied", account=_known(request), request=request, status=response.status_code, method=request.method, route=route)


def _known(request: Any) -> int | None:
    """The account of the request, if it was asked for already: a refusal costs no query."""
    user = getattr(request, "user", None)
    if isinstance(user, SimpleLazyObject) and user.__dict__["_wrapped"] is empty:
        return None
    pk: int | None = getattr(user, "pk", None)
    return pk


@receiver(user_logged_in, dispatch_uid="orders.identity.security_log")
def _signed_in(request: Any, user: User, **kwargs: Any) -> None:
    note("signed_in", account=user.pk, request=request, by=getattr(user, "backend", "").rpartition(".")[2] or None)


@receiver(user_logged_out, dispatch_uid="orders.identity.security_log")
def _signed_out(request: Any, user: User | None, **kwargs: Any) -> None:
    if user is not None:
        note("signed_out", account=user.pk, request=request)


@receiver(user_login_failed, dispatch_uid="orders.identity.security_log")
def _failed(request: Any = None, **kwargs: Any) -> None:
    tried = getattr(request, "sign_in_try", None)
    note("sign_in_refused" if tried is not None and tried.wait else "wrong_password", request=request)


@receiver(post_save, sender=User, dispatch_uid="orders.identity.security_log")
def _account_saved(instance: User, created: bool, **kwargs: Any) -> None:
    if created:
        note("account_made", account=instance.pk)
    elif getattr(instance, "_password", None) is not None:
        note("password_changed", account=instance.pk)


@receiver(post_save, sender=AuthToken, dispatch_uid="orders.identity.security_log")
def _token_made(instance: AuthToken, created: bool, **kwargs: Any) -> None:
    if created:
        note("token_made", account=instance.user_id)


@receiver(post_delete, sender=AuthToken, dispatch_uid="orders.identity.security_log")
def _token_ended(instance: AuthToken, **kwargs: Any) -> None:
    note("token_ended", account=instance.user_id)


@receiver(post_save, sender=Authenticator, dispatch_uid="orders.identity.security_log")
def _factor_made(instance: Authenticator, created: bool, **kwargs: Any) -> None:
    if created:
        note("second_factor_made", account=instance.user_id, kind=instance.type)


@receiver(post_delete, sender=Authenticator, dispatch_uid="orders.identity.security_log")
def _factor_removed(instance: Authenticator, **kwargs: Any) -> None:
    note("second_factor_removed", account=instance.user_id, kind=instance.type)
