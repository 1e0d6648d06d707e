"""Browsers that have signed in to an account before carry a signed cookie of that account.

The cookie is no key: it only keeps its browser out of the limits that strangers can use up (`attempts`). It says whether the
browser has passed a second factor, too. A new password ends all of an account's cookies.
"""

from __future__ import annotations

import secrets
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.core import signing
from django.http import HttpResponseBase
from django.utils.crypto import constant_time_compare

COOKIE = "known-browser"
LASTS_SECONDS = 180 * 86_400
_SALT = "orders.identity.devices"


def known(request: Any, account: User, *, proved: bool = False) -> str | None:
    """The name of this browser, if it has signed in to the account since its password was last changed; else None.

    proved: only if it has passed a second factor of the account as well.
    """
    try:
        said = signing.loads(request.COOKIES.get(COOKIE, ""), salt=_SALT, max_age=LASTS_SECONDS)
        pk, name, seal, *factor = said
    except (signing.BadSignature, TypeError, ValueError):
        return None
    if pk != account.pk or not constant_time_compare(seal, _seal(account)) or (proved and factor != [True]):
        return None
    return str(name)


def remember(request: Any, account: User, *, proved: bool = False) -> None:
    """Let the answer to this request carry the account's cookie. proved: the browser has passed a second factor."""
    before = known(request, account, proved=True)
    name = before or known(request, account) or secrets.token_urlsafe(9)
    request.known_browser = signing.dumps([account.pk, name, _seal(account), bool(proved or before)], salt=_SALT)


def write(request: Any, response: HttpResponseBase) -> None:
    """Set the cookie on the answer, if there is a new one."""
    if value := getattr(request, "known_browser", None):
        response.set_cookie(  # type: ignore[attr-defined]  # every response has it
            COOKIE, value, max_age=LASTS_SECONDS, secure=settings.SESSION_COOKIE_SECURE, httponly=True, samesite="Lax", path="/"
        )


def _seal(account: User) -> str:
    """Changes with the account's password."""
    return account.get_session_auth_hash()[:16]
