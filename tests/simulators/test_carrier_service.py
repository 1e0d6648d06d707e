"""The simulated carrier books once per key, and never under a deleted key."""

from __future__ import annotations

import pytest

HOME = {"name": "Ada L.", "line1": "Via Roma 1", "city": "Torino", "postal_code": "10121", "country": "IT"}


@pytest.fixture
def book(simulators, order):
    """POST a booking of this test's order."""

    def call(key: str, to=HOME, items=({"sku": "MUG-BLUE", "quantity": 2},)):
        body = {"reference": order, "to": to, "items": list(items)}
        return simulators.http.post(f"{simulators.url}/v1/shipments", json=body, headers={"Idempotency-Key": key})

    return call


@pytest.fixture
def by_key(simulators):
    """GET or DELETE by key."""
    return lambda method, key: simulators.http.request(method, f"{simulators.url}/v1/shipments/by-key/{key}")


def test_the_carrier_gives_the_same_shipment_when_a_key_comes_again(simulators, order, book, by_key):
    first, second = book(f"{order}:book"), book(f"{order}:book")

    assert first.status_code == second.status_code == 201
    assert set(first.json()) == {"id", "tracking_number"}
    assert first.json() == second.json()
    assert by_key("GET", f"{order}:book").json()["id"] == first.json()["id"]
    assert simulators.effects("carrier", "create", order) == 1


def test_a_deleted_key_books_nothing_any_more(simulators, order, book, by_key):
    book(order)

    assert [by_key("DELETE", order).status_code for _ in range(2)] == [204, 204]
    assert by_key("GET", order).status_code == 404
    assert book(order).status_code == 410
    assert simulators.effects("carrier", "delete", order) == 1


def test_a_key_never_seen_can_be_deleted_and_bars_a_late_booking(simulators, order, book, by_key):
    assert by_key("GET", order).status_code == 404
    assert by_key("DELETE", order).status_code == 204
    assert book(order).status_code == 410
    assert simulators.effects("carrier", "create", order) == simulators.effects("carrier", "delete", order) == 0


@pytest.mark.parametrize("where", [{"postal_code": "00000"}, {"country": "AQ"}])
def test_the_carrier_refuses_an_address_it_does_not_serve(book, order, where):
    answer = book(order, to={**HOME, **where})

    assert answer.status_code == 422
    assert answer.json() == {"error": "address_not_serviceable"}
    assert book(order).status_code == 201


@pytest.mark.parametrize(("status", "expected"), [(None, 503), (429, 429)])
def test_an_unavailable_carrier_says_when_to_come_again(simulators, order, book, status, expected):
    simulators.faults("carrier", "error_before", status=status)

    answer = book(order)

    assert answer.status_code == expected
    assert answer.headers["Retry-After"] == "1"
    assert simulators.effects("carrier", "create", order) == 0


def test_the_carrier_refuses_what_it_does_not_understand(simulators, book, order):
    assert book(order, to={}).status_code == 400
    assert book(order, items=()).status_code == 400
    assert book(order, items=("mug",)).status_code == 400
    assert book("").status_code == 400
    assert simulators.http.post(f"{simulators.url}/v1/shipments", content=b"{", headers={"Idempotency-Key": "k"}).status_code == 400
    assert simulators.ledger("carrier", order) == []
