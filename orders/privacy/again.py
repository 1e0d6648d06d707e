"""Erasures after a restore: a backup brings back erased persons, and the list of hashes finds them again."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime
from typing import NamedTuple

from django.contrib.auth.models import User

from orders.models import Erasure, Order
from orders.privacy import people, traces
from orders.privacy.people import Person


def listed() -> Iterator[str]:
    """The hashes of all persons that were erased or are being erased. They identify no person without the address and the SECRET_KEY."""
    known: set[str] = set()
    for digests in Erasure.objects.order_by("pk").values_list("digests", flat=True).iterator():
        yield from (digest for digest in digests if digest not in known)
        known.update(digests)


class Found(NamedTuple):
    """Who of a list is in the database again. left: addresses, or usernames, whose accounts are no customers' now."""

    persons: list[Person]
    left: list[str]


def found(hashes: Collection[str]) -> Found:
    """The persons in the database whose address, or account, has one of these hashes, and who are there from before their erasure.

    Who came back as a customer after it is left alone: nothing of such a person was erased before.
    """
    wanted, ended = set(hashes), _ended()
    emails = Order.objects.order_by().values_list("email", flat=True).distinct().iterator()
    accounts = list(User.objects.exclude(email="").values_list("email", flat=True))
    known = sorted({each.strip().lower() for each in [*emails, *accounts, *traces.addresses()]})
    there = Found([], [])
    for email in known:
        if its := wanted & set(people.digests(email)):
            person = people.with_address(email)
            if its - ended.keys() or traces.is_older(person, max(ended[digest] for digest in its)):
                _sort_in(there, person, email)
    for pk, name in User.objects.exclude(username__startswith="erased-").values_list("pk", "username").iterator():
        if wanted & set(people.digests(f"account:{pk}")):
            _sort_in(there, people.with_account(User.objects.get(pk=pk)), name)
    return there


def _sort_in(there: Found, person: Person, name: str) -> None:
    if people.is_customer(person):
        there.persons.append(person)
    else:
        there.left.append(name)


def _ended() -> dict[str, datetime]:
    """When each person was erased last, by hash, as far as this database knows: a restore has lost later erasures."""
    done = Erasure.objects.exclude(done_at=None).order_by("done_at").values_list("digests", "done_at")
    return {digest: at for digests, at in done for digest in digests if at is not None}
