"""What django-allauth asks of us: how secrets are kept, and the names that an authenticator app and a passkey show."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from functools import partial
from typing import Any

from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.mfa.models import Authenticator
from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings

from supervision.sealing import rows
from supervision.sealing.texts import MARK, Unreadable, opened, seal

__all__ = ["Factors", "Unreadable"]

PARTS = ("secret", "seed")  # what an authenticator app and recovery codes keep


class Factors(DefaultMFAAdapter):
    """Secrets of authenticator apps and recovery codes are encrypted, as webhooks' are, so that a copy of the database has none."""

    def encrypt(self, text: str) -> str:
        """The secret as it is stored."""
        return seal(text)

    def decrypt(self, encrypted_text: str) -> str:
        """The secret. Raises Unreadable if no key opens it."""
        return opened(encrypted_text) if encrypted_text.startswith(MARK) else _from_before(encrypted_text)

    def _get_user_identifier(self, user: Any) -> str:
        return str(user.get_username())


def _from_before(stored: str) -> str:
    """What was encrypted before `supervision.sealing`, under SECRET_KEY alone."""
    keys = [str(key) for key in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)]
    box = MultiFernet([Fernet(base64.urlsafe_b64encode(hashlib.sha256(f"factors:{key}".encode()).digest())) for key in keys])
    try:
        return box.decrypt(stored.encode()).decode()
    except InvalidToken:
        raise Unreadable("the secret cannot be decrypted: SECRET_KEY_FALLBACKS lacks its key") from None


def _stored() -> Iterator[rows.Row]:
    with_secrets = Authenticator.objects.exclude(type=Authenticator.Type.WEBAUTHN)
    for pk, data in rows.by_pages(with_secrets, "data"):
        for part in PARTS:
            if stored := data.get(part):
                yield rows.Row(pk, stored, partial(_write, pk, data, part), Factors().decrypt)


def _write(pk: int, data: dict[str, Any], part: str, text: str) -> bool:
    return bool(Authenticator.objects.filter(pk=pk, data=data).update(data={**data, part: text}))


rows.register("mfa_authenticator", _stored)
