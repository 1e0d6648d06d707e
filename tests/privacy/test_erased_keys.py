"""Clients' idempotency keys of erased orders: a repetition is answered, and a key that named the person keeps no erasure from its end."""

from __future__ import annotations

import pytest

from orders.privacy import people
from orders.services import Item, KeyReused, Placed, place_order, place_orders
from supervision.models import Submission
from tests.orders.test_returns import shop
from tests.shopping import a_client, a_request, an_account

from .kit import ADDRESS, EMAIL, hits
from .test_erasing import KEPT, erase, told

__all__ = ["shop"]


@pytest.fixture
def erp(shop):
    """The account of a shop's own server, which places its customers' orders."""
    return an_account("erp", "client")


def bought(shop, erp, email: str, key: str) -> Placed:
    placed = place_order(a_request(email=email, shipping_address=ADDRESS), account=erp, idempotency_key=key)
    shop.run()
    told(shop)
    return placed


def test_a_repetition_after_the_erasure_is_answered_with_the_order_as_it_is_now(shop, erp):
    first = bought(shop, erp, EMAIL, "k-1")
    erase(people.by_email(EMAIL))
    request = a_request(email=EMAIL, shipping_address=ADDRESS)

    again = a_client(erp).post("/api/v1/orders/", request, headers={"Idempotency-Key": "k-1"})
    [refused] = place_orders([Item(data={**request, "lines": []}, idempotency_key="k-1")], account=erp)

    assert (again.status_code, again["Idempotent-Replayed"]) == (202, "true"), again.content
    assert (again.json()["id"], again.json()["number"]) == (first.public_id, first.answer["number"])
    assert again.json()["process_state"] == "Processed"
    assert isinstance(refused, KeyReused)
    assert Submission.objects.count() == 1
    assert hits().keys() <= KEPT


def test_two_persons_whose_mail_addresses_are_in_the_keys_of_their_orders_are_erased(shop, erp):
    other = f"second.{EMAIL.lower()}"
    bought(shop, erp, EMAIL, f"{EMAIL}:1")
    bought(shop, erp, other, f"{other}:1")

    erased = [erase(people.by_email(email)) for email in (EMAIL, other)]

    assert [one.state for one in erased] == ["done", "done"], [one.step for one in erased]
    assert hits().keys() <= KEPT
    assert Submission.objects.values("client_key").distinct().count() == 2


@pytest.mark.parametrize("many", [False, True])
def test_a_repetition_under_a_key_that_named_the_person_makes_no_second_order(shop, erp, settings, many):
    key = f"{EMAIL}:1"
    first = bought(shop, erp, EMAIL, key)
    erase(people.by_email(EMAIL))
    settings.SECRET_KEY_FALLBACKS, settings.SECRET_KEY = [settings.SECRET_KEY], "another key " * 5  # rotated meanwhile
    request = a_request(email=EMAIL, shipping_address=ADDRESS)

    items = [Item(data=request, idempotency_key=key), Item(data={**request, "priority": 1}, idempotency_key=key)]
    [again, *refused] = place_orders(items if many else items[:1], account=erp)

    assert isinstance(again, Placed)
    assert (again.public_id, again.replayed) == (first.public_id, True)
    assert [type(one) for one in refused] == [KeyReused] * many
    assert Submission.objects.count() == 1
    place_order(request, account=an_account("another", "client"), idempotency_key=key)
    assert Submission.objects.count() == 2
