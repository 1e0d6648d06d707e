"""Operators' sessions are short: they end `OPERATOR_SESSION_SECONDS` after the sign-in, or `OPERATOR_IDLE_SECONDS` after the last activity.

Pages that refresh themselves are no activity. Customers' sessions last as Django's settings say.
"""

from __future__ import annotations

import time
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import SESSION_KEY, logout
from django.contrib.auth.models import User
from django.http import HttpRequest
from django.utils.translation import gettext as _

from orders import services

_KEPT = "operator"
_WRITE_EVERY_SECONDS = 60  # the session is a row, and each write is a commit


def begin(request: HttpRequest, account: User) -> None:
    """Start the clocks of an operator's session, also of one who has rights and does not enter the console."""
    if _is_operators(account) or services.is_staff(account):
        now = int(time.time())
        request.session[_KEPT] = [now, now]


def current(request: HttpRequest, user: Any) -> Any:
    """This account of the session; no account once an operator's session has lasted, or has been idle, for too long: it is ended here."""
    if not user.is_authenticated or SESSION_KEY not in request.session or not (_KEPT in request.session or _is_operators(user)):
        return user
    if _KEPT not in request.session:  # begun before this account became an operator's
        begin(request, user)
    since, seen = request.session[_KEPT]
    now = int(time.time())
    if now - since >= settings.OPERATOR_SESSION_SECONDS or now - seen >= settings.OPERATOR_IDLE_SECONDS:
        request.user = user
        logout(request)
        messages.info(request, _("You were signed out after a while, because operators' sessions are short. Sign in again to go on."))
        return request.user
    if now - seen >= min(_WRITE_EVERY_SECONDS, settings.OPERATOR_IDLE_SECONDS / 4) and not _refreshes_itself(request):
        request.session[_KEPT] = [since, now]
    return user


def _is_operators(account: Any) -> bool:
    """Whether it may enter the console, or has all rights at the API. Other rights are read at the sign-in, not with each request."""
    return bool(account.is_staff or account.is_superuser)


def _refreshes_itself(request: HttpRequest) -> bool:
    asks = request.headers
    by_itself = "HX-Request" in asks or asks.get("X-Requested-With") == "fetch" or "text/event-stream" in asks.get("Accept", "")
    return request.method == "GET" and by_itself
