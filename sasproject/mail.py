"""The mail server: EMAIL_URL with its certificates, and a backend that checks who the server is."""

from __future__ import annotations

import ssl
from typing import Any

import environ
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.mail.backends import smtp
from django.utils.functional import cached_property

from sasproject.env import env_secret
from sasproject.tls import Files, checked_context, files

_env = environ.Env()
# smtp+tls begins without TLS and asks for it (STARTTLS, port 587); smtp+ssl and smtps begin with it (port 465).
_AT_ONCE = "smtps"


def from_environment(name: str, default: str) -> dict[str, Any]:
    """Django's EMAIL_* settings, and EMAIL_TLS for our backend, from `smtp://user:password@host:port`. default: the URL without `name`."""
    url = env_secret(name, default)
    scheme = url.partition("://")[0] if "://" in url else ""
    if scheme not in _env.EMAIL_SCHEMES:
        raise ImproperlyConfigured(f"{name} must look like smtp://host:port, smtp+tls://host:port or smtps://host:port, not {scheme!r}.")
    if scheme == _AT_ONCE:
        url = url.replace(_AT_ONCE, "smtp+ssl", 1)
    try:
        config = dict(_env.email_url_config(url))
    except ValueError:
        raise ImproperlyConfigured(f"{name} cannot be read: expected smtp://user:password@host:port, with a number as port.") from None
    found = {key: value for key, value in config.items() if key.startswith("EMAIL_") and key != "EMAIL_FILE_PATH"}
    given = files("EMAIL", wanted=bool(found.get("EMAIL_USE_TLS") or found.get("EMAIL_USE_SSL")), scheme=f"{name}=smtp+tls:// or smtps://")
    if found["EMAIL_BACKEND"].endswith("smtp.EmailBackend"):
        found["EMAIL_BACKEND"] = "sasproject.mail.EmailBackend"
    return {**found, "EMAIL_TLS": given}


class EmailBackend(smtp.EmailBackend):
    """Django's backend, which trusts EMAIL_CA_FILE and shows our certificate. The server's name is checked."""

    @cached_property
    def ssl_context(self) -> ssl.SSLContext:  # type: ignore[override]  # the stubs know a property alone
        return checked_context(getattr(settings, "EMAIL_TLS", Files()))
