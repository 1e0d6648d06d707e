"""The address book of an account. Changes of one account wait for each other on its row, so the limit and the default hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.utils.translation import gettext as _

from orders.accounts.tables import SavedAddress
from orders.forms import ADDRESS_FIELDS as FIELDS

MOST = 20


class BookFull(Exception):
    """The account has as many addresses as it may have."""

    def __str__(self) -> str:
        return _("There are %(most)d addresses in your book, and no more fit in. Delete one first.") % {"most": MOST}


def addresses(account: Any) -> list[SavedAddress]:
    """The account's addresses: the default first, then in the sequence in which they were added."""
    return list(SavedAddress.objects.filter(account_id=account.pk).order_by("-is_default", "id")[:MOST])


def add(account: Any, address: Mapping[str, str], *, as_default: bool = False) -> SavedAddress:
    """Add an address, unless it is in the book already. The first one becomes the default. Raises BookFull."""
    facts = {name: address.get(name, "") for name in FIELDS}
    with _alone(account):
        known = SavedAddress.objects.filter(account_id=account.pk)
        same = known.filter(**facts).first()
        if same is None:
            if known.count() >= MOST:
                raise BookFull
            same = SavedAddress.objects.create(account_id=account.pk, **facts)
        if as_default or not known.filter(is_default=True).exists():
            _make_default(same)
        return same


def change(account: Any, pk: int, address: Mapping[str, str], *, as_default: bool = False) -> bool:
    """Change one of the account's addresses; False if there is none such. Orders keep the address that they were placed with."""
    with _alone(account):
        changed = SavedAddress.objects.filter(account_id=account.pk, pk=pk).update(**{name: address.get(name, "") for name in FIELDS})
        if changed and as_default:
            _make_default(SavedAddress.objects.get(pk=pk))
        return bool(changed)


def make_default(account: Any, pk: int) -> bool:
    """Make one of the account's addresses the default; False if there is none such."""
    with _alone(account):
        row = SavedAddress.objects.filter(account_id=account.pk, pk=pk).first()
        if row is not None:
            _make_default(row)
        return row is not None


def delete(account: Any, pk: int) -> bool:
    """Delete an address; False if there is none such. The oldest of the others becomes the default if it was that."""
    with _alone(account):
        deleted, _rows = SavedAddress.objects.filter(account_id=account.pk, pk=pk).delete()
        left = SavedAddress.objects.filter(account_id=account.pk).order_by("-is_default", "id").first()
        if left is not None and not left.is_default:
            _make_default(left)
        return bool(deleted)


def _make_default(row: SavedAddress) -> None:
    SavedAddress.objects.filter(account_id=row.account_id, is_default=True).exclude(pk=row.pk).update(is_default=False)
    SavedAddress.objects.filter(pk=row.pk, is_default=False).update(is_default=True)
    row.is_default = True


@contextmanager
def _alone(account: Any) -> Iterator[None]:
    """One change of this account's book at a time. The lock leaves the account's sign-ins and orders alone."""
    with transaction.atomic():
        User.objects.select_for_update(no_key=True).get(pk=account.pk)
        yield
