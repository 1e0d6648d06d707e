"""Opens accounts, and records whose mail address is verified. Each function is one transaction."""

from __future__ import annotations

import secrets

from django.contrib.auth.models import Group, User
from django.db import IntegrityError, transaction

from orders.accounts.signing_in import is_taken
from orders.accounts.tables import VerifiedEmail


def open_account(address: str, password_hash: str) -> User | None:
    """A customer's account with a verified address; None if there is an account with this address already."""
    try:
        with transaction.atomic():
            if is_taken(address):
                return None
            account = User(username=_username(address), email=address, password=password_hash)
            account.save(force_insert=True)
            account.groups.add(*Group.objects.filter(name="customer"))
            VerifiedEmail.objects.create(account=account, address=address.lower())
            return account
    except IntegrityError:
        return None  # the same link was used twice at the same moment


def verify(account_id: int, address: str) -> bool:
    """Record that the account's owner has this address, and make it the account's; False if another account has it."""
    try:
        with transaction.atomic():
            User.objects.filter(pk=account_id).exclude(email=address).update(email=address)
            VerifiedEmail.objects.update_or_create(account_id=account_id, defaults={"address": address.lower()})
    except IntegrityError:
        return False
    return True


def _username(address: str) -> str:
    """The address itself where it can be one. It is shown to operators, and never asked for."""
    name = address.lower()
    if len(name) > 150 or User.objects.filter(username=name).exists():
        return f"customer-{secrets.token_hex(8)}"
    return name
