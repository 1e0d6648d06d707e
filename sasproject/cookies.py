"""Names of cookies. Under https they begin with `__Host-`: browsers then take them from this host alone, for all of its paths."""

from __future__ import annotations

from django.conf import settings
from django.contrib.messages.storage.cookie import CookieStorage
from django.contrib.messages.storage.fallback import FallbackStorage
from django.contrib.messages.storage.session import SessionStorage


def name(plain: str, *, secure: bool) -> str:
    """The cookie's name. secure: whether the site is reached by https."""
    return f"__Host-{plain}" if secure else plain


class HostCookies(CookieStorage):
    """Messages in a cookie of this host."""

    cookie_name = name("messages", secure=settings.SESSION_COOKIE_SECURE)


class Messages(FallbackStorage):
    """Django's default, with the cookie's name."""

    storage_classes = (HostCookies, SessionStorage)
