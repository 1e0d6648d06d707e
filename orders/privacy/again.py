"""Erasures after a restore: a backup brings back erased persons, and the list of hashes finds them again."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from django.contrib.auth.models import User

from orders.models import Erasure, Order
from orders.privacy import people, traces
from orders.privacy.people import Person
from supervision.errors import Refused


def listed() -> Iterator[str]:
    """The hashes of all persons that were erased or are being erased. They name no one without the address and the SECRET_KEY."""
    known: set[str] = set()
    for digests in Erasure.objects.order_by("pk").values_list("digests", flat=True).iterator():
        yield from (digest for digest in digests if digest not in known)
        known.update(digests)


def found(hashes: Collection[str]) -> list[Person]:
    """The persons in the database whose address, or account, has one of these hashes."""
    wanted = set(hashes)
    emails = Order.objects.order_by().values_list("email", flat=True).distinct().iterator()
    accounts = list(User.objects.exclude(email="").values_list("email", flat=True))
    known = sorted({each.strip().lower() for each in [*emails, *accounts, *traces.addresses()]})
    persons = [people.by_email(email) for email in known if wanted & set(people.digests(email))]
    for pk, name in User.objects.exclude(username__startswith="erased-").values_list("pk", "username"):
        if wanted & set(people.digests(f"account:{pk}")):
            try:
                persons.append(people.by_account(name))
            except Refused:
                continue
    return persons
