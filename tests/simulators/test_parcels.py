"""Parcels on their way at the simulated carrier: their states, and the signed events that tell of them."""

from __future__ import annotations

import hashlib
import hmac

import pytest

from tests.support.hearing import Hearing, hearing
from tests.support.simulators import CARRIER_SECRET, Simulators

ADDRESS = {"country": "IT", "postal_code": "10121"}


@pytest.fixture
def shop():
    def genuine(body, headers):
        return headers["X-Signature"] == "sha256=" + hmac.new(CARRIER_SECRET.encode(), body, hashlib.sha256).hexdigest()

    with hearing(genuine) as shop:
        yield shop


def states(shop: Hearing, count: int) -> list[str]:
    return [event["state"] for event in shop.wait(count)]


@pytest.fixture
def booked(simulators, order) -> dict:
    return book(simulators, order)


def book(simulators: Simulators, order: str) -> dict:
    body = {"reference": order, "to": ADDRESS, "items": [{"sku": "A", "quantity": 1}]}
    return simulators.http.post(f"{simulators.url}/v1/shipments", json=body, headers={"Idempotency-Key": f"{order}:1"}).json()


def standing(simulators: Simulators, shipment: str) -> dict:
    return simulators.http.get(f"{simulators.url}/v1/shipments/{shipment}").json()


def test_a_parcel_travels_and_every_state_is_told_signed(simulators, shop, booked, order):
    assert standing(simulators, booked["id"])["state"] == "booked"
    simulators.tell(shop.url, "carrier")
    for count, state in enumerate(("picked_up", "delivered", "returned"), 1):
        simulators.move(booked["id"], state)
        assert standing(simulators, booked["id"])["state"] == state
        assert states(shop, count)[-1] == state

    assert shop.heard[0] == {"id": booked["id"], "key": f"{order}:1", "state": "picked_up", "at": shop.heard[0]["at"]}
    assert standing(simulators, booked["id"])["changed_at"] == shop.heard[2]["at"]
    assert simulators.effects("carrier", "delivered", order) == 1


def test_an_unknown_parcel_does_not_travel(simulators):
    assert simulators.http.post(f"{simulators.url}/shipments/shp_unknown/picked_up").status_code == 404
    assert simulators.http.post(f"{simulators.url}/shipments/shp_unknown/lost").status_code == 404


def test_events_are_repeated_lost_and_told_again_until_they_are_answered(simulators, shop, booked):
    simulators.tell(shop.url, "carrier")
    simulators.behave(webhooks_lost=1.0)
    simulators.move(booked["id"], "picked_up")
    simulators.behave(webhooks_lost=0.0, webhooks_repeated=2)
    shop.refuses = 2
    simulators.move(booked["id"], "delivered")

    assert states(shop, 3) == ["delivered"] * 3
    assert len({event["at"] for event in shop.heard}) == 1


def test_states_and_untold_events_survive_a_kill(simulators, shop, booked, eventually):
    simulators.tell("http://127.0.0.1:1/", "carrier")
    simulators.move(booked["id"], "picked_up")
    simulators.restart_with_carrier(shop.url)

    assert standing(simulators, booked["id"])["state"] == "picked_up"
    eventually(lambda: [event["state"] for event in shop.heard if event["id"] == booked["id"]] == ["picked_up"])
