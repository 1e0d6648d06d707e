"""What django-allauth asks of us: how secrets are kept, and the names that an authenticator app and a passkey show."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

from allauth.mfa.adapter import DefaultMFAAdapter
from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings

__all__ = ["Factors", "InvalidToken"]


class Factors(DefaultMFAAdapter):
    """Secrets of authenticator apps and recovery codes are encrypted under SECRET_KEY, so that a copy of the database has none."""

    def encrypt(self, text: str) -> str:
        """The secret as it is stored."""
        return _box().encrypt(text.encode()).decode()

    def decrypt(self, encrypted_text: str) -> str:
        """The secret. Raises InvalidToken if SECRET_KEY is another one now."""
        return _box().decrypt(encrypted_text.encode()).decode()

    def _get_user_identifier(self, user: Any) -> str:
        return str(user.get_username())


def _box() -> MultiFernet:
    keys = [str(key) for key in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)]
    return MultiFernet([Fernet(base64.urlsafe_b64encode(hashlib.sha256(f"factors:{key}".encode()).digest())) for key in keys])
