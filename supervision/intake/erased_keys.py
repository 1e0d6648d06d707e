"""What is left of a client's idempotency key that named a person who has been erased: a digest under a key of this installation.

A repetition under the client's key is still known by it, and makes no second order. The digest ends with the submission (KEY_DAYS).
It identifies no person: the words cannot be guessed without the installation's key.
"""

from __future__ import annotations

import hashlib
import hmac

from supervision.sealing import texts

MARK = "erased:"


def kept(client: str, key: str) -> str:
    """What is kept in the place of this client's key."""
    return _digest(texts.secret_keys()[0], client, key)


def names(client: str, key: str) -> list[str]:
    """What may be kept in the place of this client's key: under each key of the installation."""
    return [_digest(secret, client, key) for secret in texts.secret_keys()]


def _digest(secret: str, client: str, key: str) -> str:
    return MARK + hmac.digest(f"erased idempotency key:{secret}".encode(), f"{client} {key}".encode(), hashlib.sha256).hex()
