"""Sign-in by mail address. Sign-in by username is Django's own, after this one.

Upper and lower case of the address do not matter. The account with the verified address has it; without one, the only account with
this address. Several accounts with one address are from the time when addresses were not checked: they sign in by username, and are
told no more than others whose password is wrong. For every mail address one password is hashed here, so that the time of the answer
does not tell whether there is an account.
"""

from __future__ import annotations

from typing import Any

from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import User
from django.http import HttpRequest

from orders.accounts.tables import VerifiedEmail

DJANGOS = "django.contrib.auth.backends.ModelBackend"


class ByMail(ModelBackend):
    """Finds the account by its mail address."""

    def authenticate(self, request: HttpRequest | None, username: str | None = None, password: str | None = None, **kwargs: Any) -> Any:
        """The account, if the address leads to one and the password is its own."""
        if username is None or password is None or "@" not in username:
            return None
        account = account_of(username)
        if account is None:
            User().set_password(password)
            return None
        return account if account.check_password(password) and self.user_can_authenticate(account) else None


def account_of(address: str) -> User | None:
    """The account that this mail address leads to; None if there is none, or more than one."""
    said = address.strip()
    if "\x00" in said:
        return None
    verified = VerifiedEmail.objects.select_related("account").filter(address=said.lower()).first()
    if verified is not None and verified.account.email.lower() == said.lower():
        return verified.account
    found = list(User.objects.filter(email__iexact=said)[:2])  # by the index `account_email`
    return found[0] if len(found) == 1 else None


def is_taken(address: str) -> bool:
    """Whether an account has this mail address, verified or not."""
    return VerifiedEmail.objects.filter(address=address.lower()).exists() or User.objects.filter(email__iexact=address).exists()


def is_verified(account: Any) -> bool:
    """Whether the account's present mail address is verified."""
    return bool(account.email) and VerifiedEmail.objects.filter(account_id=account.pk, address=account.email.lower()).exists()
