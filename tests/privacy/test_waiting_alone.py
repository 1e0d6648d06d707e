"""Accepted orders that no consumer has taken up yet: only those of the person count as the person's."""

from __future__ import annotations

import json
from io import BytesIO
from zipfile import ZipFile

import pytest

from orders.privacy import erasing, exporting, people, traces
from orders.services import client_of
from supervision.models import Submission
from tests.orders.test_returns import shop
from tests.shopping import an_account, place

from .kit import ADDRESS, EMAIL

__all__ = ["shop"]

THEIRS = {"name": "Bob Marley", "line1": "Via Garibaldi 3", "city": "Torino", "postal_code": "10121", "country": "IT"}


def exported(person: people.Person) -> list[str]:
    exporting.write(person, written := BytesIO())
    return [order["id"] for order in json.loads(ZipFile(written).read("data.json"))["orders"]]


@pytest.mark.parametrize(("by", "email"), [("bob", EMAIL), (None, f"x{EMAIL}")])
def test_a_waiting_order_of_someone_else_is_neither_exported_nor_held_against_the_person(shop, by, email):
    theirs = place(an_account(by, "customer") if by else None, email=email, shipping_address=THEIRS)
    assert Submission.objects.filter(consumed_at=None).count() == 1
    person = people.by_email(EMAIL)

    assert exported(person) == []
    assert erasing.plan(person).waiting == 0
    assert traces.submitted(person) == ([theirs] if email == EMAIL else [])  # its address has to go, too


@pytest.mark.parametrize("by", ["erp", None])
def test_a_waiting_order_of_the_person_is(shop, by):
    account = an_account(by, "client") if by else None
    own = place(account, email=EMAIL.upper(), shipping_address=ADDRESS)
    assert Submission.objects.get(consumed_at=None).client == client_of(account, None)
    person = people.by_email(EMAIL)

    assert exported(person) == traces.submitted(person) == [own]
    assert erasing.plan(person).waiting == 1
