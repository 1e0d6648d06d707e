"""Who a person is: the mail addresses and the accounts that belong together, and the orders that are the person's own."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import Q, QuerySet
from django.utils.crypto import salted_hmac
from django.utils.translation import gettext as _

from orders.accounts.signing_in import account_of, is_verified
from orders.models import Erasure, Order
from supervision.errors import Refused
from supervision.postgres import db
from supervision.privacy.words import Words

GUEST = "customer"  # the actor that a guest is in an order's history
_SALT = "orders.privacy"
# Addresses are kept as they were typed.
_AS_TYPED = "SELECT DISTINCT email FROM orders_order WHERE lower(email) = ANY (%(emails)s)"


@dataclass
class Person:
    """One person. emails: in lower case. typed: the same as orders have them. accounts: primary keys. names: usernames.

    words: names and lines of addresses, which name the person in the person's own orders, and may name others elsewhere. archived: public
    ids of the orders that were found in the archive alone.
    """

    emails: list[str]
    typed: list[str] = field(default_factory=list)
    accounts: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    archived: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, subject: dict[str, Any]) -> Person:
        """The person that an erasure's row names."""
        return cls(**subject)

    @property
    def digests(self) -> list[str]:
        """Hashes of the mail addresses, or of the account where it has none."""
        return sorted(digest(name) for name in self.emails or [f"account:{pk}" for pk in self.accounts])

    @property
    def surely(self) -> Words:
        """The words that name no other person: mail addresses; and usernames, where they are all that a text says."""
        return Words([*self.emails, *(name for name in self.names if "@" in name)], whole=self.names)

    @property
    def actors(self) -> set[str]:
        """The names under which the person stands in the histories of orders."""
        return {*self.names, GUEST}

    @property
    def all_words(self) -> Words:
        """Every word that names the person in the person's own orders."""
        parts = [part for word in self.words for part in word.split() if part.isalpha()]
        return Words([*self.emails, *self.names, *self.words, *parts], phones=True)

    def look_again(self) -> None:
        """Find the spellings of the addresses in orders."""
        self.typed = sorted({*self.emails, *(email for (email,) in db.run(_AS_TYPED, {"emails": self.emails}))})

    def learn(self, texts: Iterable[str]) -> None:
        """Remember names and lines of addresses."""
        self.words = sorted({*self.words, *(text.strip() for text in texts if text and text.strip())})

    def own_orders(self) -> QuerySet[Order]:
        """The orders of the accounts, and those that guests and shops' servers placed with the mail addresses."""
        return Order.objects.filter(Q(account__in=self.accounts) | (Q(email__in=self.typed) & _no_persons()))

    def named_in(self) -> QuerySet[Order]:
        """Orders of other accounts that have one of the addresses: the address goes, the rest is theirs."""
        return Order.objects.filter(email__in=self.typed).exclude(Q(account__in=self.accounts) | _no_persons())


def _no_persons() -> Q:
    """Of no account, or of a shop's own server."""
    return Q(account=None) | Q(account__in=User.objects.filter(groups__name="client").values("pk"))


def digest(email: str, secret: Any = None) -> str:
    """A hash of this address that tells it to those who know the address and the SECRET_KEY, and to no others."""
    return salted_hmac(_SALT, email.strip().lower(), secret=secret, algorithm="sha256").hexdigest()


def digests(email: str) -> Collection[str]:
    """The hashes that this address has, or had under an earlier SECRET_KEY."""
    return {digest(email, secret) for secret in (None, *settings.SECRET_KEY_FALLBACKS)}


def by_email(email: str) -> Person:
    """The person with this mail address: the account that it leads to, and orders of guests. Raises Refused where it is no address,
    and where the account is no customer's."""
    person = with_address(email)
    _confirm_customer(person)
    return person


def with_address(email: str) -> Person:
    """The same, also where the account is staff's or a shop's server's."""
    said = email.strip().lower()
    if "@" not in said or "\0" in said or len(said) > 254:
        raise Refused(_("Give a mail address, such as ada@example.com."))
    account = account_of(said)
    person = _of_account(account) if account is not None else Person([])
    person.emails = sorted({*person.emails, said})
    person.look_again()
    return person


def by_account(name: str) -> Person:
    """The person with the account of this username, or the one whose erasure is under way. Raises Refused where there is none."""
    account = User.objects.filter(username=name).first()
    known = None if account else Erasure.objects.filter(done_at=None, subject__names__contains=[name]).first()
    if known is not None:
        return Person.of(known.subject)
    if account is None:
        raise Refused(_("There is no account %(name)s.") % {"name": name})
    return of_account(account)


def of_account(account: User) -> Person:
    """The person with this account. Orders of guests count where the account's address is verified."""
    person = with_account(account)
    _confirm_customer(person)
    return person


def with_account(account: User) -> Person:
    """The same, also where the account is staff's or a shop's server's."""
    person = _of_account(account)
    person.look_again()
    return person


def is_customer(person: Person) -> bool:
    """Whether no account of the person is staff's or a shop's server's. A guest is a customer, too."""
    others = Q(is_staff=True) | Q(is_superuser=True) | Q(groups__name="client")
    return not User.objects.filter(others, pk__in=person.accounts).exists()


def _confirm_customer(person: Person) -> None:
    if not is_customer(person):
        raise Refused(_("This account is no customer's. Take away its rights first."))


def _of_account(account: User) -> Person:
    emails = [account.email.lower()] if is_verified(account) else []
    addresses = [text for row in account.addresses.all() for text in (row.name, row.line1, row.line2, row.city)]  # type: ignore[attr-defined]
    person = Person(emails, accounts=[account.pk], names=[account.username])
    person.learn([account.get_full_name(), account.email, *addresses])
    return person
