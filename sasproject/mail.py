"""The mail server: EMAIL_URL with its certificates, and a backend that checks who the server is and finds it in time."""

from __future__ import annotations

import smtplib
import socket
import ssl
from typing import Any

import environ
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.mail.backends import smtp
from django.core.mail.utils import DNS_NAME
from django.utils.encoding import punycode
from django.utils.functional import cached_property

from sasproject.env import env_secret
from sasproject.tls import Files, checked_context, files
from supervision.runtime import names

_env = environ.Env()
# smtp+tls begins without TLS and asks for it (STARTTLS, port 587); smtp+ssl and smtps begin with it (port 465).
_AT_ONCE = "smtps"
LONGEST = 10  # seconds, where EMAIL_TIMEOUT is None


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


class _Server(smtplib.SMTP):
    """Finds the server and connects to it within its time limit. A name server that does not answer has no more."""

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        problem: OSError = ConnectionError(f"{host} has no address")
        for address, seconds in names.tries(host, port, timeout):
            try:
                found = socket.create_connection((address, port), seconds, self.source_address)
            except OSError as failed:
                problem = failed
            else:
                found.settimeout(timeout)  # of each answer; `seconds` was for this connection alone
                return found
        raise problem


class _TlsServer(smtplib.SMTP_SSL, _Server):
    """The same where TLS comes first. `SMTP_SSL` takes its socket from the class after it."""


class EmailBackend(smtp.EmailBackend):
    """Django's backend, which trusts EMAIL_CA_FILE and shows our certificate. The server's name is checked.

    The time limit of a connection (`timeout`, EMAIL_TIMEOUT) holds for the lookups of names, too.
    """

    @property
    def connection_class(self) -> type[smtplib.SMTP]:
        """smtplib's class, with a time limit for the lookup."""
        return _TlsServer if self.use_ssl else _Server

    @cached_property
    def ssl_context(self) -> ssl.SSLContext:  # type: ignore[override]  # the stubs know a property alone
        return checked_context(getattr(settings, "EMAIL_TLS", Files()))

    def open(self) -> bool | None:
        """Open a session. The name that we greet the server with is looked up once for each process."""
        if self.timeout is None:
            self.timeout = LONGEST
        if not hasattr(DNS_NAME, "_fqdn"):
            DNS_NAME._fqdn = punycode(names.own_name(self.timeout / 2))
        return super().open()
