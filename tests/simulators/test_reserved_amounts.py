"""A payment with `capture_method=manual` at the simulated payment service: reserved, captured, released or lapsed."""

from __future__ import annotations

import pytest

from tests.simulators.test_payment_service import post
from tests.simulators.test_second_factor import page_of, shop
from tests.support.simulators import KEY, SECOND_FACTOR, Simulators

__all__ = ["post", "shop"]


def get(simulators: Simulators, name: str) -> dict:
    return simulators.http.get(f"{simulators.url}/v1/payment_intents/{name}", headers=KEY).json()


@pytest.fixture
def reserve(post, order):
    """Create and confirm a payment of 25.80 EUR that reserves its amount; returns it."""

    def call(card: str = "pm_card_visa") -> dict:
        form = {"amount": "2580", "currency": "eur", "capture_method": "manual", "metadata[order]": order}
        made = post("payment_intents", **form).json()
        assert made["capture_method"] == "manual"
        return post(f"payment_intents/{made['id']}/confirm", payment_method=card).json()

    return call


def test_a_confirmation_reserves_the_amount_and_moves_no_money(simulators, reserve, order):
    reserved = reserve()

    assert (reserved["status"], reserved["amount_capturable"], reserved["amount_received"]) == ("requires_capture", 2580, 0)
    assert simulators.charged(order) == 0


def test_a_capture_charges_once_whatever_the_keys(simulators, reserve, post, order):
    reserved = reserve()
    first = post(f"payment_intents/{reserved['id']}/capture", f"{order}:a", amount_to_capture="2580")
    again = post(f"payment_intents/{reserved['id']}/capture", f"{order}:a", amount_to_capture="2580")
    second = post(f"payment_intents/{reserved['id']}/capture", f"{order}:b", amount_to_capture="2580")

    assert (first.json()["status"], first.json()["amount_received"], first.json()["amount_capturable"]) == ("succeeded", 2580, 0)
    assert (again.json(), again.headers["Idempotent-Replayed"]) == (first.json(), "true")
    assert (second.status_code, second.json()["error"]["code"]) == (400, "payment_intent_unexpected_state")
    assert simulators.charged(order) == 2580


def test_a_part_is_captured_and_the_rest_released_and_no_more_is_refunded_than_was_captured(simulators, reserve, post, order):
    reserved = reserve()
    captured = post(f"payment_intents/{reserved['id']}/capture", amount_to_capture="1000").json()

    assert (captured["amount"], captured["amount_received"]) == (2580, 1000)
    assert post("refunds", payment_intent=reserved["id"], amount="1001").status_code == 400
    assert post("refunds", payment_intent=reserved["id"]).json()["amount"] == 1000
    assert simulators.charged(order) == 0


@pytest.mark.parametrize(
    ("amount", "code"), [("2581", "amount_too_large"), ("0", "parameter_invalid_integer"), ("x", "parameter_invalid_integer")]
)
def test_no_more_is_captured_than_was_reserved(simulators, reserve, post, order, amount, code):
    refused = post(f"payment_intents/{reserve()['id']}/capture", amount_to_capture=amount)

    assert (refused.status_code, refused.json()["error"]["code"]) == (400, code)
    assert simulators.charged(order) == 0


def test_a_cancellation_releases_the_amount_which_can_not_be_captured_then(simulators, reserve, post, order):
    reserved = reserve()
    released = post(f"payment_intents/{reserved['id']}/cancel").json()

    assert (released["status"], released["amount_capturable"]) == ("canceled", 0)
    assert post(f"payment_intents/{reserved['id']}/capture").json()["error"]["code"] == "payment_intent_unexpected_state"
    assert simulators.charged(order) == 0


def test_an_amount_that_is_not_captured_in_time_lapses_also_over_a_restart(simulators, reserve, post, order):
    simulators.behave(reserved_for=0.05)
    lapsing = reserve()
    simulators.behave(reserved_for=3600)
    kept = reserve()
    simulators.restart()

    now = get(simulators, lapsing["id"])

    assert (now["status"], now["cancellation_reason"], now["amount_capturable"]) == ("canceled", "automatic", 0)
    assert post(f"payment_intents/{lapsing['id']}/capture").status_code == 400
    assert get(simulators, kept["id"])["status"] == "requires_capture"
    assert simulators.charged(order) == 0


def test_a_captured_amount_does_not_lapse(simulators, reserve, post):
    simulators.behave(reserved_for=3600)
    reserved = reserve()
    post(f"payment_intents/{reserved['id']}/capture")

    assert simulators.http.post(f"{simulators.url}/payments/{reserved['id']}/expire").status_code == 400
    assert get(simulators, reserved["id"])["status"] == "succeeded"


def test_a_second_factor_reserves_once_the_customer_has_confirmed(simulators, reserve, order):
    asked = reserve(SECOND_FACTOR)
    assert asked["status"] == "requires_action"

    simulators.answer_bank(page_of(asked))

    assert get(simulators, asked["id"])["status"] == "requires_capture"
    assert simulators.charged(order) == 0


def test_each_change_is_told_to_the_shop(simulators, reserve, post, shop):
    simulators.tell(shop.url)
    first, second = reserve(), reserve()
    shop.wait(2)
    post(f"payment_intents/{first['id']}/capture")
    simulators.expire(second["id"])
    shop.wait(4)

    assert sorted((event["data"]["object"]["id"] == first["id"], event["type"]) for event in shop.heard) == [
        (False, "payment_intent.amount_capturable_updated"),
        (False, "payment_intent.canceled"),
        (True, "payment_intent.amount_capturable_updated"),
        (True, "payment_intent.succeeded"),
    ]


def test_another_way_to_capture_is_refused_with_the_name_of_the_field(post):
    refused = post("payment_intents", amount="2580", currency="eur", capture_method="later")

    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "capture_method")
