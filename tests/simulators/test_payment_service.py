"""The simulated payment service keeps Stripe's promises, on which the agent's correctness depends."""

from __future__ import annotations

import pytest

from tests.support.simulators import KEY


@pytest.fixture
def post(simulators):
    """POST a form; returns the answer."""

    def call(path: str, key: str | None = None, **form):
        headers = {**KEY, "Idempotency-Key": key} if key else KEY
        return simulators.http.post(f"{simulators.url}/v1/{path}", data=form, headers=headers)

    return call


@pytest.fixture
def get(simulators):
    """GET as a client with a key."""
    return lambda path, **query: simulators.http.get(f"{simulators.url}/v1/{path}", params=query, headers=KEY)


@pytest.fixture
def intent(post, order):
    """An intent over 25.80 EUR that is not confirmed yet."""
    answer = post("payment_intents", f"{order}:create", amount="2580", currency="eur", **{"metadata[order]": order})
    assert answer.status_code == 200
    return answer.json()


def test_the_service_replays_the_first_answer_when_a_key_comes_again(simulators, post, order, intent):
    again = post("payment_intents", f"{order}:create", amount="2580", currency="eur", **{"metadata[order]": order})

    assert again.json() == intent
    assert again.headers["Idempotent-Replayed"] == "true"
    assert [entry["effect"] for entry in simulators.ledger("payment", order)] == [True, False]


def test_the_service_refuses_other_parameters_when_a_key_comes_again(post, order, intent):
    other = post("payment_intents", f"{order}:create", amount="1", currency="eur", **{"metadata[order]": order})

    assert other.status_code == 400
    assert other.json()["error"]["type"] == "idempotency_error"


def test_an_intent_is_charged_once_whatever_the_keys(simulators, post, order, intent):
    first = post(f"payment_intents/{intent['id']}/confirm", "a", payment_method="pm_card_visa")
    second = post(f"payment_intents/{intent['id']}/confirm", "b", payment_method="pm_card_visa")

    assert first.json()["status"] == "succeeded"
    assert second.status_code == 400
    assert second.json()["error"]["code"] == "payment_intent_unexpected_state"
    assert simulators.charged(order) == 2580


def test_a_cancelled_intent_is_never_charged(simulators, post, order, intent):
    cancelled = post(f"payment_intents/{intent['id']}/cancel", f"{order}:cancel")
    late = post(f"payment_intents/{intent['id']}/confirm", f"{order}:confirm", payment_method="pm_card_visa")

    assert cancelled.json()["status"] == "canceled"
    assert late.json()["error"]["code"] == "payment_intent_unexpected_state"
    assert simulators.charged(order) == 0


def test_a_charged_intent_cannot_be_cancelled(post, order, intent):
    post(f"payment_intents/{intent['id']}/confirm", f"{order}:confirm", payment_method="pm_card_visa")

    assert post(f"payment_intents/{intent['id']}/cancel", f"{order}:cancel").status_code == 400


@pytest.mark.parametrize(
    ("method", "status", "code"),
    [("pm_card_visa_chargeDeclined", 402, "card_declined"), ("pm_card_of_nobody", 400, "resource_missing")],
)
def test_a_bad_card_is_refused_and_the_refusal_is_replayed(simulators, post, order, intent, method, status, code):
    answers = [post(f"payment_intents/{intent['id']}/confirm", f"{order}:confirm", payment_method=method) for _ in range(2)]

    assert [answer.status_code for answer in answers] == [status, status]
    assert answers[0].json()["error"]["code"] == code
    assert answers[0].content == answers[1].content
    assert simulators.charged(order) == 0


def test_a_refused_intent_can_be_confirmed_with_another_card(post, order, intent):
    post(f"payment_intents/{intent['id']}/confirm", "a" + order, payment_method="pm_card_visa_chargeDeclined")
    answer = post(f"payment_intents/{intent['id']}/confirm", "b" + order, payment_method="pm_card_visa")

    assert answer.json()["status"] == "succeeded"


def test_refunds_never_exceed_the_charge(simulators, post, get, order, intent):
    post(f"payment_intents/{intent['id']}/confirm", f"{order}:confirm", payment_method="pm_card_visa")

    part = post("refunds", "part" + order, payment_intent=intent["id"], amount="1000")
    too_much = post("refunds", "much" + order, payment_intent=intent["id"], amount="2000")
    rest = post("refunds", "rest" + order, payment_intent=intent["id"])
    again = post("refunds", "again" + order, payment_intent=intent["id"])

    assert (part.status_code, too_much.status_code, rest.json()["amount"]) == (200, 400, 1580)
    assert again.json()["error"]["code"] == "charge_already_refunded"
    assert [one["amount"] for one in get("refunds", payment_intent=intent["id"]).json()["data"]] == [1580, 1000]
    assert simulators.charged(order) == 0


def test_an_uncharged_intent_cannot_be_refunded(post, order, intent):
    assert post("refunds", f"{order}:refund", payment_intent=intent["id"]).status_code == 400


def test_the_search_finds_an_orders_intents_and_no_others(post, get, order, intent):
    post("payment_intents", "bystander" + order, amount="1", currency="eur", **{"metadata[order]": "another-order"})

    found = get("payment_intents/search", query=f"metadata['order']:'{order}'").json()["data"]

    assert [one["id"] for one in found] == [intent["id"]]
    assert get(f"payment_intents/{intent['id']}").json() == intent


def test_a_server_error_is_stored_under_its_key(simulators, post, order, intent):
    simulators.faults("payment", "error_before")
    broken = post(f"payment_intents/{intent['id']}/confirm", f"{order}:confirm", payment_method="pm_card_visa")
    simulators.clear()
    replayed = post(f"payment_intents/{intent['id']}/confirm", f"{order}:confirm", payment_method="pm_card_visa")
    fresh = post(f"payment_intents/{intent['id']}/confirm", f"{order}:confirm:2", payment_method="pm_card_visa")

    assert [broken.status_code, replayed.status_code, fresh.status_code] == [500, 500, 200]
    assert simulators.charged(order) == 2580


@pytest.mark.parametrize(
    ("path", "form"),
    [
        ("payment_intents", {"amount": "-1", "currency": "eur"}),
        ("payment_intents", {"amount": "1.5", "currency": "eur"}),
        ("payment_intents", {"amount": "100", "currency": "euros"}),
        ("payment_intents/pi_unknown/confirm", {"payment_method": "pm_card_visa"}),
        ("refunds", {"payment_intent": "pi_unknown"}),
    ],
)
def test_the_service_refuses_what_it_does_not_understand(post, path, form):
    answer = post(path, **form)

    assert answer.status_code in (400, 404)
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_the_service_wants_a_key(simulators):
    assert simulators.http.get(f"{simulators.url}/v1/payment_intents/pi_1").status_code == 401
