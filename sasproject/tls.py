"""Certificates: the authorities that this process trusts, and the certificate that it shows, for the broker and the mail server.

libpq has parameters of its own in DATABASE_URL (sslmode, sslrootcert, sslcert, sslkey). Here the server's certificate and
its name are always checked, against the system's authorities or the given ones.
"""

from __future__ import annotations

import ssl
from typing import Any, NamedTuple

from django.core.exceptions import ImproperlyConfigured

from sasproject.env import env_file, env_str


class Files(NamedTuple):
    """Paths of PEM files. ca: the authorities to trust, None for the system's. cert and key: what we show, None for nothing."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None


def files(prefix: str, *, wanted: bool, scheme: str) -> Files:
    """The files that PREFIX_CA_FILE, PREFIX_CERT_FILE and PREFIX_KEY_FILE name, checked.

    wanted: whether the connection uses TLS; without it a given file is an error. scheme: what to set, for that error.
    """
    names = [f"{prefix}_{part}_FILE" for part in ("CA", "CERT", "KEY")]
    if not wanted:
        given = [name for name in names if env_str(name)]
        if given:
            raise ImproperlyConfigured(f"{given[0]} is set, but the connection has no TLS: set {scheme}.")
        return Files()
    ca, cert, key = names
    found = Files(env_file(ca), env_file(cert), env_file(key))
    if (found.cert is None) != (found.key is None):
        raise ImproperlyConfigured(f"{cert} and {key} must be set together.")
    for name, pair in ((ca, Files(ca=found.ca)), (f"{cert} or {key}", Files(cert=found.cert, key=found.key))):
        try:
            checked_context(pair)
        except (ssl.SSLError, OSError):
            path = pair.ca or f"{pair.cert}, {pair.key}"
            raise ImproperlyConfigured(f"{name} cannot be used: {path}: expected PEM, and a key without a password that fits.") from None
    return found


def checked_context(given: Files) -> ssl.SSLContext:
    """A client's context that checks the server's certificate and its name."""
    context = ssl.create_default_context(cafile=given.ca)
    if given.cert and given.key:
        context.load_cert_chain(given.cert, given.key, password=_no_password)
    return context


def _no_password() -> str:
    raise ssl.SSLError("the key has a password")  # OpenSSL would ask for it at the terminal


def for_broker(url: str, kind: str) -> dict[str, Any] | None:
    """Celery's `broker_use_ssl`, or None without TLS. kind: `amqp`, `redis` or another transport."""
    secure = url.partition("://")[0] in ("amqps", "rediss")
    given = files("BROKER", wanted=secure, scheme="CELERY_BROKER_URL=amqps:// or rediss://")
    if not secure:
        return None
    if kind == "amqp":  # the transport fills the server's name in
        options = {"ca_certs": given.ca, "certfile": given.cert, "keyfile": given.key}
        return {"cert_reqs": ssl.CERT_REQUIRED} | {key: value for key, value in options.items() if value}
    return {
        "ssl_cert_reqs": ssl.CERT_REQUIRED,
        "ssl_check_hostname": True,
        "ssl_ca_certs": given.ca,
        "ssl_certfile": given.cert,
        "ssl_keyfile": given.key,
    }
