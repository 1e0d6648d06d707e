"""An order whose payment waits for its customer, with the whole engine: what the order shows, and how each wait ends."""

from __future__ import annotations

import pytest

from orders.models import Product
from orders.payments import codes, state
from supervision import testing
from supervision.operations import operator_verbs
from supervision.signals.sending import send_signal
from supervision.testkit.run import Run
from tests.shopping import a_product, paying, place
from tests.support.simulators import SECOND_FACTOR


@pytest.fixture
def shop(sas, services, transactional_db, settings):
    a_product()
    settings.PAYMENT_ACTION_WITHIN, settings.PAYMENT_LOOK_AFTER = 600.0, 60.0
    return sas


@pytest.fixture
def waiting(shop) -> str:
    """The public id of an order that waits for its customer."""
    key = place(payment_method=SECOND_FACTOR)
    shop.run()
    assert paying(key)["state"] == state.ACTION_REQUIRED
    return key


def test_the_order_shows_the_page_to_open_and_what_it_waits_for(waiting, client, services):
    page = client.get(f"/orders/{waiting}/").text

    assert paying(waiting)["action_url"] in page
    assert "Please confirm your payment" in page
    assert services.charged(waiting) == 0


def test_a_signal_completes_an_order_that_was_confirmed(shop, waiting, services, client):
    services.answer_bank(paying(waiting)["action_url"])
    send_signal(waiting, codes.ANSWERED, {}, key="evt_1")
    shop.run()

    Run(waiting).assert_state("Processed")
    assert paying(waiting) == {"state": "paid", "action_url": None, "paid": "25.80", "refunded": "0.00"}
    assert services.charged(waiting) == 2580
    shop.assert_healthy()


def test_a_look_completes_it_where_no_webhook_comes(shop, waiting, services):
    services.answer_bank(paying(waiting)["action_url"])
    shop.advance("40s")
    assert paying(waiting)["state"] == state.ACTION_REQUIRED
    shop.advance("21s")

    Run(waiting).assert_state("Processed")
    assert services.charged(waiting) == 2580


def test_a_payment_that_nobody_confirms_is_closed_and_refused(shop, waiting, services, client):
    url = paying(waiting)["action_url"]
    shop.advance("570s")
    assert paying(waiting)["state"] == state.ACTION_REQUIRED
    shop.advance("31s")

    Run(waiting).assert_state("Error")
    assert paying(waiting)["state"] == state.REFUSED
    page = client.get(f"/orders/{waiting}/").text
    assert "not confirmed in time" in page
    assert url not in page
    assert services.answer_bank(url) == 409
    assert services.charged(waiting) == 0


def test_a_cancelled_order_is_never_charged_however_late_the_customer_confirms(shop, waiting, services):
    url = paying(waiting)["action_url"]
    operator_verbs.cancel(waiting, by="customer", reason="changed my mind")
    assert paying(waiting)["action_url"] is None
    shop.run()

    Run(waiting).assert_state("Cancelled")
    assert services.answer_bank(url) == 409
    assert (paying(waiting)["state"], services.charged(waiting)) == (state.NONE, 0)
    assert Product.objects.get().available == 50
    shop.assert_healthy()


def test_a_confirmation_before_the_cancellation_is_given_back(shop, waiting, services):
    services.answer_bank(paying(waiting)["action_url"])
    operator_verbs.cancel(waiting, by="customer", reason="changed my mind")
    shop.run()

    Run(waiting).assert_state("Cancelled")
    assert paying(waiting) == {"state": "refunded", "action_url": None, "paid": "25.80", "refunded": "25.80"}
    assert services.charged(waiting) == 0


@pytest.mark.parametrize("at", ["agent.after_intention", "agent.before_call", "agent.after_effect"])
def test_an_agent_that_dies_while_it_hears_the_answer_charges_once(shop, waiting, services, at):
    services.answer_bank(paying(waiting)["action_url"])
    shop.kill("charge-payment", at=at)
    send_signal(waiting, codes.ANSWERED, {}, key="evt_1")
    shop.advance("5m")

    Run(waiting).assert_state("Processed")
    assert services.charged(waiting) == 2580
    shop.assert_healthy()


@pytest.mark.parametrize("at", ["agent.after_intention", "agent.after_checkpoint"])
def test_an_agent_that_dies_before_it_waits_asks_the_customer_once(shop, services, at):
    key = place(payment_method=SECOND_FACTOR)
    shop.kill("charge-payment", at=at)
    shop.advance("2m")

    assert paying(key)["state"] == state.ACTION_REQUIRED
    services.answer_bank(paying(key)["action_url"])
    shop.advance("2m")
    Run(key).assert_state("Processed")
    assert services.effects("payment", "create", key) == 1
    assert services.charged(key) == 2580


def test_a_declined_card_is_refused_in_the_order_too(shop, client, services):
    key = place(payment_method="pm_card_visa_chargeDeclined")
    shop.run()

    assert paying(key)["state"] == state.REFUSED
    assert "Your payment was refused" in client.get(f"/orders/{key}/").text


def test_an_immediate_card_never_waits(shop, services):
    key = place()
    assert paying(key)["state"] == state.NONE
    shop.run()

    assert paying(key)["state"] == state.PAID
    assert testing.step(key, "charge-payment").awaits is None
