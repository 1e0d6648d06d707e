"""Seals a secret before it is stored and opens it before it is used: Fernet (AES-128-CBC, HMAC-SHA256) of `cryptography`.

The keys are the texts of `settings.FIELD_ENCRYPTION_KEYS`, then SECRET_KEY and SECRET_KEY_FALLBACKS. The first one seals, all of
them open. A sealed text names its key, so opening it is one decryption, however many keys there are.

It begins with a letter that is not ASCII. Code from before this module takes a sealed text for the secret itself: with that letter
it fails to sign or to connect, and tries again later, where it could sign with a wrong key otherwise.
"""

from __future__ import annotations

import base64
from functools import lru_cache

from cryptography.fernet import Fernet, InvalidToken
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings
from django.utils.translation import gettext as _

MARK = "§1§"
_ID_BYTES = 4


class Unreadable(ValueError):
    """A sealed text that no key opens. Its message is one sentence for an operator, without a secret."""


class Unopened(str):
    """What a model's field holds in place of a secret that no key opens: the sealed text, which is stored again as it is."""

    __slots__ = ()


def seal(secret: str) -> str:
    """The secret as it is stored, under the first key. An empty text stays empty."""
    if not secret:
        return ""
    name, key = next(iter(_ring(secret_keys()).items()))
    return f"{MARK}{name}§{key.encrypt(secret.encode()).decode()}"


def opened(stored: str) -> str:
    """The secret in a stored text. A text from before the encryption is the secret. Raises Unreadable."""
    if not is_sealed(stored):
        return stored
    name, _sign, token = stored.removeprefix(MARK).partition("§")
    key = _ring(secret_keys()).get(name)
    if key is None:
        said = _("the secret cannot be decrypted: FIELD_ENCRYPTION_KEYS and SECRET_KEY lack its key %(key)s")
        raise Unreadable(said % {"key": name[:20]})
    try:
        return key.decrypt(token.encode("ascii", "replace")).decode()
    except InvalidToken:
        raise Unreadable(_("the secret cannot be decrypted: it is damaged")) from None


def usable(secret: str) -> str:
    """The secret that a model's field holds. Raises Unreadable if no key opened it."""
    if isinstance(secret, Unopened):
        opened(secret)  # raises, with the reason
        raise Unreadable(_("the secret could not be decrypted when it was read"))
    return secret


def is_sealed(stored: str) -> bool:
    """Whether this stored text is encrypted."""
    return stored.startswith(MARK)


def is_current(stored: str) -> bool:
    """Whether this stored text needs no other encryption: it is empty, or sealed under the first key."""
    return not stored or stored.startswith(f"{MARK}{next(iter(_ring(secret_keys())))}§")


def secret_keys() -> tuple[str, ...]:
    """The texts of this installation's keys, the newest first."""
    own = getattr(settings, "FIELD_ENCRYPTION_KEYS", ())
    return (*own, settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)


@lru_cache(maxsize=8)
def _ring(keys: tuple[str, ...]) -> dict[str, Fernet]:
    """The keys by their names, in their order. A key's name says nothing about the key."""
    ring: dict[str, Fernet] = {}
    for text in keys:
        derived = HKDF(SHA256(), 32 + _ID_BYTES, salt=None, info=b"supervision.sealing 1").derive(text.encode())
        ring.setdefault(derived[32:].hex(), Fernet(base64.urlsafe_b64encode(derived[:32])))
    return ring
