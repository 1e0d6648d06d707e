"""Passkeys (WebAuthn). Each one verifies its user by PIN, finger or face, so a passkey alone counts as both factors.

A passkey belongs to the host name under which it was made. Browsers permit them under https, and under http for `localhost`.
"""

from __future__ import annotations

import json
import struct
from typing import Any

from allauth.core import context
from allauth.mfa.models import Authenticator
from allauth.mfa.webauthn.internal import auth
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models.functions import Now
from django.http import HttpRequest

from orders.factors import telling

MOST = 20  # of one account
LONGEST = 20_000  # characters of what a browser sends
_MAKING = "passkey-in-the-making"
# What the library raises for an answer that cannot be read: it looks into bytes that a stranger has written.
_UNREADABLE = (
    ValidationError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    RecursionError,
    NotImplementedError,
    AssertionError,
    struct.error,
)


def options_to_enrol(account: Any) -> dict[str, Any]:
    """What the browser needs to make a passkey. The session keeps the challenge, also where a page asks for a passkey meanwhile."""
    options = _plain(auth.begin_registration(account, passwordless=True))
    context.request.session[_MAKING] = auth.get_state()
    return options


def go_on_enrolling(request: HttpRequest) -> None:
    """Let the challenge count with which the browser was asked to make a passkey: it may have been asked to use one since."""
    auth.set_state(request.session.pop(_MAKING, None) or auth.get_state() or {})


def options_to_prove(account: Any | None) -> dict[str, Any]:
    """What the browser needs to use a passkey of this account; None: of any account, to sign in."""
    return _plain(auth.begin_authentication(account))


def enrol(account: Any, said: str, name: str) -> bool:
    """Keep the passkey that the browser has made; False if it is none that answers our challenge, or the account has too many."""
    if Authenticator.objects.filter(user_id=account.pk, type=Authenticator.Type.WEBAUTHN).count() >= MOST:
        return False
    try:
        credential = _read(said)
        auth.parse_registration_response(credential)
        auth.complete_registration(credential)
        with transaction.atomic():
            auth.WebAuthn.add(account, name, credential)
            telling.tell(account, telling.PASSKEY_ADDED)
    except (*_UNREADABLE, IntegrityError):
        return False
    return True


def is_right(account: Any, said: str) -> bool:
    """Whether a passkey of this account has answered the session's challenge, and has verified its user."""
    return _proved(account, said) is not None


def owner(said: str) -> Any | None:
    """The account whose passkey has answered the session's challenge; None if there is none."""
    try:
        account = auth.extract_user_from_response(_read(said))
    except _UNREADABLE:
        return None
    return _proved(account, said)


def _proved(account: Any, said: str) -> Any | None:
    try:
        credential = _read(said)
        auth.parse_authentication_response(credential)
        used = auth.complete_authentication(account, credential)
    except _UNREADABLE:
        return None
    finally:
        auth.clear_state()  # a challenge is good for one answer
    # Another session may have removed it since it was read: it proves nothing then.
    return account if Authenticator.objects.filter(pk=used.pk).update(last_used_at=Now()) else None


def _read(said: str) -> Any:
    if len(said) > LONGEST:
        raise ValueError("too long")
    return json.loads(said)


def _plain(options: Any) -> dict[str, Any]:
    return dict(json.loads(json.dumps(_dictionary(options))))


def _dictionary(value: Any) -> Any:
    """The library's own mappings as dictionaries, which JSON can write."""
    if hasattr(value, "items"):
        return {key: _dictionary(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_dictionary(part) for part in value]
    return value
