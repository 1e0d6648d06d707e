"""The settings of second factors, of entering the password again, and of signing in by OpenID Connect."""

from __future__ import annotations

import hashlib
from typing import Any
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured

from sasproject.env import env_bool, env_choice, env_list, env_seconds, env_str

REQUIRED, OPTIONAL, OFF = "required", "optional", "off"
GROUPS = ("operator", "viewer")  # those that may enter the console


def _reauthenticate() -> float | None:
    return None if env_str("REAUTHENTICATE_SECONDS").lower() == "off" else env_seconds("REAUTHENTICATE_SECONDS", 900.0)


def _groups() -> dict[str, str]:
    """`order-desk=operator,auditors=viewer`: a group of the provider, and the group of ours that its members get."""
    found: dict[str, str] = {}
    for part in env_list("OIDC_GROUPS", []):
        theirs, _equals, ours = (word.strip() for word in part.rpartition("="))
        if not theirs or ours not in GROUPS:
            raise ImproperlyConfigured(f"OIDC_GROUPS must look like order-desk=operator,auditors=viewer, not {part!r}.")
        found[theirs] = ours
    return found


def _provider(groups: dict[str, str]) -> dict[str, Any]:
    issuer = env_str("OIDC_ISSUER").rstrip("/")
    if not issuer:
        return {}
    parts = urlsplit(issuer)
    if not parts.hostname or (parts.scheme != "https" and parts.hostname not in ("localhost", "127.0.0.1")):
        raise ImproperlyConfigured(f"OIDC_ISSUER must be an https:// address, not {issuer!r}.")
    client, secret = env_str("OIDC_CLIENT_ID"), env_str("OIDC_CLIENT_SECRET")
    for name, value in (("OIDC_CLIENT_ID", client), ("OIDC_CLIENT_SECRET", secret), ("OIDC_GROUPS", groups)):
        if not value:
            raise ImproperlyConfigured(f"{name} must be given where OIDC_ISSUER is.")
    app: dict[str, Any] = {
        "provider_id": OIDC_PROVIDER,
        "name": env_str("OIDC_NAME", str(parts.hostname)),
        "client_id": client,
        "secret": secret,
        "settings": {"server_url": issuer, "oauth_pkce_enabled": True},
    }
    return {"openid_connect": {"APPS": [app]}}


def second_factor(*, debug: bool) -> str:
    """`required`, `optional` or `off`."""
    return env_choice("CONSOLE_SECOND_FACTOR", OFF if debug else REQUIRED, (REQUIRED, OPTIONAL, OFF)) or OFF


# Names the issuer: another issuer's people are others, even where it numbers them alike.
OIDC_PROVIDER = f"console-{hashlib.sha256(env_str('OIDC_ISSUER').rstrip('/').encode()).hexdigest()[:12]}"
REAUTHENTICATE_SECONDS = _reauthenticate()
OIDC_GROUPS = _groups()
OIDC_TRUSTS_MFA = env_bool("OIDC_TRUSTS_MFA", default=False)
OIDC_PROVIDERS = _provider(OIDC_GROUPS)
# django-allauth: its functions for codes and passkeys, and its part of OpenID Connect. Its own pages are not offered.
ALLAUTH: dict[str, Any] = {
    "MFA_SUPPORTED_TYPES": ["totp", "recovery_codes", "webauthn"],
    "MFA_ADAPTER": "orders.factors.library.Factors",
    "MFA_TOTP_TOLERANCE": 1,  # clocks of telephones differ by some seconds
    "MFA_WEBAUTHN_USER_VERIFICATION": "required",
    "SOCIALACCOUNT_ADAPTER": "orders.factors.openid.Console",
    "SOCIALACCOUNT_LOGIN_ON_GET": True,  # a form may not lead to another site (Content-Security-Policy)
}
