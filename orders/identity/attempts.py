"""Tries to sign in are counted before a password is hashed, so that guessing stops early and costs little.

Within a quarter of an hour there may be `TRIES` wrong passwords for one account from one network, `NETWORK_TRIES` from one network,
and `ACCOUNT_TRIES` for one account from all networks. A browser that has signed in to the account before (`devices`) has `TRIES` of
its own and no other limit. So strangers who guess, from one network or from many, lock the owner out of no browser that the owner
uses. A try whose password is right is given back.

A try that is refused by one limit does not count for the next, or one network alone could use up an account's limit.
"""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

from django.contrib.auth.models import User

from orders.accounts.signing_in import account_of
from orders.api.throttling import address_of, counted_until, give_back
from orders.identity import devices, security_log
from orders.identity.hashing import HashingBusy

WINDOW_SECONDS = 900
TRIES = 9
NETWORK_TRIES = 50
ACCOUNT_TRIES = 50


class Try(NamedTuple):
    """A try that was counted. wait: seconds until another is allowed; 0 if this one is."""

    buckets: list[str]
    wait: float


class TooManyTries(Exception):
    """A signed-in visitor has entered too many wrong passwords of the own account. wait: seconds until another is looked at."""

    def __init__(self, wait: float) -> None:
        super().__init__(wait)
        self.wait = wait


def begin(request: Any, name: str) -> Try:
    """Count a try to sign in with this mail address or username."""
    return begin_as(request, _account_named(name), name)


def begin_as(request: Any, account: User | None, name: str = "") -> Try:
    """Count a try of this account's password. name: what was entered, for a try at no account."""
    key = f"{account.pk}" if account else hashlib.sha256(name.strip().lower().encode("utf-8", "replace")).hexdigest()[:32]
    limits = _limits(request, account, key)
    begun: list[str] = []
    for bucket, most in limits:
        begun.append(bucket)
        hits, wait = counted_until([bucket], seconds=WINDOW_SECONDS)[bucket]
        if hits > most:
            return Try(begun, max(1.0, wait))
    return Try(begun, 0.0)


def forgive(done: Try) -> None:
    """Give a try back: its password was right, or was not looked at."""
    give_back(done.buckets)


def not_looked_at(request: Any) -> None:
    """Give the try of this request back, if it has one: its password found no place to be hashed."""
    if done := getattr(request, "sign_in_try", None):
        forgive(done)
        request.sign_in_try = None


def watched(request: Any, account: Any) -> Any:
    """This account of the session. From now on it counts each password that it is asked about, so no page of ours can forget to.

    Its `check_password` raises TooManyTries. A right one is given back, and `request.confirmed` is the account then.
    """
    if not account.is_authenticated:
        return account
    check = account.check_password

    def counted(password: str) -> bool:
        request.sign_in_try = done = begin_as(request, account)
        if done.wait:
            raise TooManyTries(done.wait)
        try:
            right = bool(check(password))
        except HashingBusy:
            not_looked_at(request)
            raise
        request.sign_in_try = None
        if right:
            forgive(done)
            request.confirmed = account
        else:
            security_log.note("wrong_password", account=account.pk, request=request)
        return right

    account.check_password = counted
    return account


def _limits(request: Any, account: User | None, key: str) -> list[tuple[str, int]]:
    device = devices.known(request, account) if account else None
    if device:
        return [(f"tries:{key}:{device}", TRIES)]
    network = address_of(request)
    return [(f"tries:{key}:{network}", TRIES), (f"tries-from:{network}", NETWORK_TRIES), (f"tries-of:{key}", ACCOUNT_TRIES)]


def _account_named(name: str) -> User | None:
    """The account that a name leads to, as the authentication backends find it."""
    if "\x00" in name:
        return None
    return (account_of(name) if "@" in name else None) or User.objects.filter(username=name).first()
