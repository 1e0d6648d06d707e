"""A payment with a second factor at the simulated payment service: the bank's page, and the signed events that tell its end."""

from __future__ import annotations

from collections import Counter

import pytest
import stripe

from chaos.look import until
from tests.support.hearing import Hearing, hearing
from tests.support.simulators import KEY, SECOND_FACTOR, WEBHOOK_SECRET, Simulators


@pytest.fixture
def shop():
    """Checks signatures with Stripe's own package."""

    def genuine(body, headers):
        return stripe.WebhookSignature.verify_header(body.decode(), headers["Stripe-Signature"], WEBHOOK_SECRET, 60)

    with hearing(genuine) as shop:
        yield shop


def types(shop: Hearing, count: int) -> list[str]:
    return [event["type"] for event in shop.wait(count)]


@pytest.fixture
def waiting(simulators, order):
    """An intent whose bank asks the customer."""
    return ask(simulators, order)


def post(simulators: Simulators, path: str, **form):
    return simulators.http.post(f"{simulators.url}/v1/{path}", data=form, headers=KEY)


def ask(simulators: Simulators, order: str, amount: str = "2580", currency: str = "eur") -> dict:
    made = post(simulators, "payment_intents", amount=amount, currency=currency, **{"metadata[order]": order}).json()
    answer = post(simulators, f"payment_intents/{made['id']}/confirm", payment_method=SECOND_FACTOR, return_url="http://shop.example/o/")
    assert answer.status_code == 200
    return answer.json()


def page_of(intent: dict) -> str:
    return intent["next_action"]["redirect_to_url"]["url"]


def test_the_confirmation_of_such_a_card_moves_no_money_and_names_a_page(simulators, waiting, order):
    assert waiting["status"] == "requires_action"
    assert simulators.charged(order) == 0

    page = simulators.http.get(page_of(waiting))

    assert page.status_code == 200
    assert "25.80" in page.text
    assert "EUR" in page.text


def test_the_customer_confirms_once_and_is_sent_back(simulators, waiting, order):
    answer = simulators.http.post(f"{page_of(waiting)}/confirm")

    assert (answer.status_code, answer.headers["Location"]) == (303, "http://shop.example/o/")
    assert simulators.charged(order) == 2580
    assert simulators.answer_bank(page_of(waiting)) == 409
    assert simulators.answer_bank(page_of(waiting), "refuse") == 409
    assert simulators.charged(order) == 2580


def test_a_refusal_charges_nothing_and_the_payment_can_be_confirmed_with_another_card(simulators, waiting, order):
    simulators.answer_bank(page_of(waiting), "refuse")

    refused = simulators.http.get(f"{simulators.url}/v1/payment_intents/{waiting['id']}", headers=KEY).json()
    assert refused["status"] == "requires_payment_method"
    assert refused["last_payment_error"]["code"] == "payment_intent_authentication_failure"
    assert simulators.charged(order) == 0
    again = post(simulators, f"payment_intents/{waiting['id']}/confirm", payment_method="pm_card_visa")
    assert again.json()["status"] == "succeeded"


def test_a_payment_that_was_cancelled_meanwhile_can_not_be_confirmed(simulators, waiting, order):
    assert post(simulators, f"payment_intents/{waiting['id']}/cancel").json()["status"] == "canceled"

    assert simulators.answer_bank(page_of(waiting)) == 409
    assert simulators.charged(order) == 0


@pytest.mark.parametrize(("units", "currency", "said"), [("12900", "kwd", "12.900 KWD"), ("500", "ugx", "5.00 UGX"), ("9", "jpy", "9 JPY")])
def test_the_page_says_the_amount_that_is_charged(simulators, order, units, currency, said):
    assert said in simulators.http.get(page_of(ask(simulators, order, units, currency))).text


def test_the_page_of_an_unknown_payment_says_so(simulators):
    assert simulators.http.get(f"{simulators.url}/bank/pi_unknown").status_code == 404
    assert simulators.answer_bank(f"{simulators.url}/bank/pi_unknown") == 404


def test_every_change_is_told_signed(simulators, shop, order):
    simulators.tell(shop.url)
    paid, refused, dropped = (ask(simulators, f"{order}{n}") for n in range(3))
    simulators.answer_bank(page_of(paid))
    simulators.answer_bank(page_of(refused), "refuse")
    post(simulators, f"payment_intents/{dropped['id']}/cancel")
    post(simulators, "refunds", payment_intent=paid["id"], amount="100")
    simulators.close_dispute(simulators.dispute(paid["id"]), "lost")

    told = Counter(types(shop, 6))

    assert told == Counter(
        [
            "payment_intent.succeeded",
            "payment_intent.payment_failed",
            "payment_intent.canceled",
            "charge.refund.updated",
            "charge.dispute.created",
            "charge.dispute.closed",
        ]
    )
    assert all(event["data"]["object"]["id"] for event in shop.heard)


def test_a_shop_that_is_away_hears_of_it_later(simulators, shop, order):
    shop.refuses = 3
    simulators.tell(shop.url)

    simulators.answer_bank(page_of(ask(simulators, order)))

    assert types(shop, 1) == ["payment_intent.succeeded"]
    assert shop.refuses == 0


def test_a_killed_service_goes_on_telling_after_its_restart(tmp_path, shop, order):
    with Simulators.started(tmp_path / "ledger.jsonl") as simulators:
        shop.refuses = 1_000_000
        simulators.restart_with(shop.url)
        simulators.answer_bank(page_of(ask(simulators, order)))
        until(lambda: shop.refused, within=20)
        simulators.kill()
        shop.refuses = 0
        simulators.start()

        assert types(shop, 1) == ["payment_intent.succeeded"]
        until(lambda: '"told"' in (tmp_path / "ledger.jsonl").read_text())  # the answer has come back, and is written down
        simulators.restart()
        simulators.answer_bank(page_of(ask(simulators, f"{order}x")))
        assert len(types(shop, 2)) == 2, "told again although it was answered"
        assert len({event["id"] for event in shop.heard}) == 2


def test_events_are_told_twice_or_never_as_asked(simulators, shop, order):
    simulators.tell(shop.url)
    simulators.behave(webhooks_repeated=2, webhooks_late=0.2)
    simulators.answer_bank(page_of(ask(simulators, order)))
    assert types(shop, 3) == ["payment_intent.succeeded"] * 3
    assert len({event["id"] for event in shop.heard}) == 1

    simulators.behave(webhooks_lost=1, webhooks_late=0)
    lost = ask(simulators, f"{order}x")
    simulators.answer_bank(page_of(lost))
    simulators.behave(webhooks_lost=0, webhooks_late=0, webhooks_repeated=0)
    simulators.answer_bank(page_of(ask(simulators, f"{order}y")))
    types(shop, 4)
    assert lost["id"] not in {event["data"]["object"]["id"] for event in shop.heard}


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("webhook", {"url": 3}, "url"),
        ("webhook", {"url": "ftp://x"}, "url"),
        ("behaviour", {"webhooks_lost": 2}, "webhooks_lost"),
        ("behaviour", {"webhooks_repeated": 0.5}, "webhooks_repeated"),
    ],
)
def test_a_wrong_wish_is_refused_by_its_name(simulators, path, body, field):
    answer = simulators.http.post(f"{simulators.url}/{path}", json=body)

    assert answer.status_code == 400
    assert field in answer.json()["error"]
