"""Tries at codes and passkeys are counted before they are looked at.

Ten wrong ones stop a browser for at most a quarter of an hour. Browsers that have passed a second factor of the account before have
a count of their own each; all others share one. So a stranger who knows the password and guesses codes, from any number of
networks, has ten tries in a quarter of an hour, and keeps the owner out of no browser that the owner uses.
"""

from __future__ import annotations

from typing import Any

from orders.api.throttling import address_of, counted_until
from orders.identity import devices
from orders.identity.attempts import WINDOW_SECONDS, Try

TRIES = 10
UNNAMED_TRIES = 300  # of one network: an office signs in each morning, and there is nothing to guess
USED_SECONDS = 180  # longer than a code of an authenticator app is valid


def begin(request: Any, account: Any) -> Try:
    """Count a try at a second factor of this account."""
    device = devices.known(request, account, proved=True) or ""
    return _counted(f"factors:{account.pk}:{device}", TRIES)


def begin_unnamed(request: Any) -> Try:
    """Count a try to sign in that names no account: by passkey, or by OpenID Connect."""
    return _counted(f"unnamed-from:{address_of(request)}", UNNAMED_TRIES)


def first_use(account: Any, code: str) -> bool:
    """Whether this code of the account's authenticator app is used for the first time."""
    bucket = f"code-of:{account.pk}:{code}"
    return counted_until([bucket], seconds=USED_SECONDS)[bucket][0] == 1


def _counted(bucket: str, most: int) -> Try:
    hits, wait = counted_until([bucket], seconds=WINDOW_SECONDS)[bucket]
    return Try([bucket], max(1.0, wait) if hits > most else 0.0)
