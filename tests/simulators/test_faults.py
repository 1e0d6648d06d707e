"""Faults of the simulated services: each mode does what its name says, and control requests are validated."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest

from tests.support.simulators import KEY


@pytest.fixture
def create(simulators, order):
    """Create an intent for this test's order."""

    def call(key: str = "create", timeout: float = 5):
        form = {"amount": "100", "currency": "eur", "metadata[order]": order}
        headers = {**KEY, "Idempotency-Key": f"{order}:{key}"}
        return simulators.http.post(f"{simulators.url}/v1/payment_intents", data=form, headers=headers, timeout=timeout)

    return call


@pytest.fixture
def effects(simulators, order):
    """How many intents this test's order has."""
    return lambda: simulators.effects("payment", "create", order)


def test_a_service_that_errs_before_has_done_nothing(simulators, create, effects):
    simulators.faults("payment", "error_before")

    assert create().status_code == 500
    assert effects() == 0


def test_a_service_that_errs_after_the_effect_has_done_it(simulators, create, effects):
    simulators.faults("payment", "error_after_effect")

    assert create().status_code == 500
    assert effects() == 1


def test_a_reset_connection_hides_an_effect(simulators, create, effects):
    simulators.faults("payment", "reset_after_effect")

    with pytest.raises(httpx2.NetworkError):
        create()
    assert effects() == 1


def test_a_held_connection_hides_an_effect_until_the_fault_is_healed(simulators, create, effects, eventually):
    simulators.faults("payment", "timeout_after_effect")

    with pytest.raises(httpx2.ReadTimeout):
        create(timeout=0.2)
    assert effects() == 1

    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(create, "other")
        eventually(lambda: effects() == 2)
        simulators.clear()
        with pytest.raises(httpx2.RemoteProtocolError):
            held.result()


def test_lost_answers_spare_calls_without_effect(simulators, create, effects):
    first = create()
    simulators.faults("payment", "reset_after_effect")

    assert create().json() == first.json()
    assert effects() == 1


def test_a_declining_service_refuses_a_good_card(simulators, order, create):
    intent = create().json()["id"]
    simulators.faults("payment", "decline")

    answer = simulators.http.post(
        f"{simulators.url}/v1/payment_intents/{intent}/confirm", data={"payment_method": "pm_card_visa"}, headers=KEY
    )

    assert answer.status_code == 402
    assert simulators.charged(order) == 0


def test_a_slow_service_takes_its_time(simulators, create, effects):
    simulators.faults("payment", "slow", latency_ms=150)

    begun = time.monotonic()
    assert create().status_code == 200

    assert time.monotonic() - begun >= 0.15
    assert effects() == 1


def test_a_service_that_is_down_answers_nobody_and_does_nothing(simulators, create, effects):
    simulators.faults("payment", "down")

    with pytest.raises(httpx2.NetworkError):
        create()

    assert effects() == 0
    assert simulators.http.get(f"{simulators.url}/v1/shipments/by-key/bystander").status_code == 404


def test_a_fault_ends_by_itself_when_its_time_is_over(simulators, create, eventually):
    simulators.faults("payment", "down", until=0.2)

    assert simulators.http.get(f"{simulators.url}/faults").json()["payment"]["mode"] == "down"
    eventually(lambda: simulators.http.get(f"{simulators.url}/faults").json()["payment"]["mode"] == "ok")
    assert create().status_code == 200


def test_a_fault_befalls_as_many_calls_as_its_probability_says(simulators, create):
    simulators.faults("payment", "error_before", probability=0.5)

    statuses = [create(f"try-{number}").status_code for number in range(60)]

    assert 10 < statuses.count(500) < 50


def test_all_services_can_be_broken_and_one_be_healed(simulators):
    simulators.faults("all", "down", until="2999-01-01T00:00:00Z")
    simulators.http.delete(f"{simulators.url}/faults", params={"service": "mail"})

    modes = {service: fault["mode"] for service, fault in simulators.http.get(f"{simulators.url}/faults").json().items()}

    assert modes == {"payment": "down", "carrier": "down", "mail": "ok"}


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({"service": "bank", "mode": "ok"}, "service"),
        ({"service": "payment", "mode": "sleepy"}, "mode"),
        ({"service": "payment", "mode": "down", "probability": 2}, "probability"),
        ({"service": "payment", "mode": "down", "probability": "1"}, "probability"),
        ({"service": "payment", "mode": "slow", "latency_ms": -1}, "latency_ms"),
        ({"service": "payment", "mode": "slow", "until": "tomorrow"}, "until"),
        ({"service": "payment", "mode": "error_before", "status": 200}, "status"),
        ({"service": "payment", "mode": "ok", "color": "red"}, "color"),
        ({"service": "mail", "mode": "error_before", "order": "x"}, "order"),
        ({"service": "payment", "mode": "error_before", "postal_code": "10121"}, "postal_code"),
        ({"service": "carrier", "mode": "error_before", "order": "x", "postal_code": "10121"}, "order"),
        ({"service": "carrier", "mode": "error_before", "postal_code": 10121}, "postal_code"),
        (["payment"], "object"),
        ("payment", "object"),
    ],
)
def test_a_control_request_that_is_wrong_changes_nothing_and_is_told_why(simulators, wrong, word):
    answer = simulators.http.post(f"{simulators.url}/faults", json=wrong)

    assert answer.status_code == 400
    assert word in answer.json()["error"]
    assert {fault["mode"] for fault in simulators.http.get(f"{simulators.url}/faults").json().values()} == {"ok"}


def test_the_meter_shows_how_many_calls_were_in_flight(simulators, create):
    expected = {"calls": 5, "in_flight": 0, "max_in_flight": 5, "max_per_second": 5}
    for latency_ms in (300, 1_000, 3_000):  # on a busy machine the first call may end before the last one begins
        simulators.http.delete(f"{simulators.url}/stats")
        simulators.faults("payment", "slow", latency_ms=latency_ms)
        with ThreadPoolExecutor(5) as pool:
            list(pool.map(create, [f"{latency_ms}-{n}" for n in range(5)]))
        found = simulators.stats()["payment"]
        if found == expected:
            break

    assert found == expected


def test_the_page_shows_calls_and_faults_to_people(simulators, create, order):
    create()
    create("<script>")

    page = simulators.http.get(f"{simulators.url}/").text

    assert order in page
    assert "<script>" not in page
    assert simulators.http.get(f"{simulators.url}/healthz").json() == {"status": "ok"}
    assert simulators.http.get(f"{simulators.url}/nothing").status_code == 404


@pytest.fixture
def book(simulators, order):
    """Book a shipment to a postal code."""

    def call(postal_code: str, of: str = order) -> int:
        body = {"reference": of, "to": {"country": "IT", "postal_code": postal_code}, "items": [{"sku": "MUG", "quantity": 1}]}
        headers = {**KEY, "Idempotency-Key": f"{of}:{postal_code}", "X-Order-ID": of}
        return simulators.http.post(f"{simulators.url}/v1/shipments", json=body, headers=headers).status_code

    return call


def test_a_fault_of_one_postal_code_befalls_the_bookings_there_and_no_others(simulators, book):
    simulators.faults("carrier", "error_before", postal_code="13013", status=500)

    assert [book("13013"), book("10121"), book("13013")] == [500, 201, 500]
    assert simulators.http.get(f"{simulators.url}/faults").json()["carrier"]["mode"] == "ok"
    simulators.clear()
    assert book("13013") == 201


def test_a_fault_of_one_order_befalls_all_of_its_calls_and_goes_before_the_services_own(simulators, order, book, create):
    intent = create().json()["id"]
    simulators.faults("payment", "error_before", order=order, status=503)
    simulators.faults("carrier", "error_before", order=order, status=500)
    simulators.faults("carrier", "error_before", status=429)

    confirm = simulators.http.post(
        f"{simulators.url}/v1/payment_intents/{intent}/confirm", data={"payment_method": "pm_card_visa"}, headers=KEY
    )

    assert (create("again").status_code, confirm.status_code) == (503, 503)
    assert (book("10121"), book("10121", f"{order}-other")) == (500, 429)


def test_a_narrow_fault_ends_by_itself_when_its_time_is_over(simulators, book, eventually):
    simulators.faults("carrier", "error_before", postal_code="13013", until=0.2)

    eventually(lambda: book("13013") == 201)
