"""Orders that reserve the money at the checkout and are charged once the goods are booked, with the whole engine."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from django.test import Client

from orders.intake import read
from orders.models import Product
from orders.payments import codes, state
from supervision import TransientFailure, testing
from supervision.agent import get_agent
from supervision.errors import UnreadableSubmission
from supervision.models import Effect
from supervision.models import Run as RunRow
from supervision.operations import operator_verbs
from supervision.signals.sending import send_signal
from supervision.testkit.run import Run
from tests.orders.test_payment_hook import event, tell
from tests.shopping import ADDRESS, DECLINED, NOWHERE, a_product, later, paying, place
from tests.support.requests import PAYLOAD
from tests.support.simulators import SECOND_FACTOR

STEPS = ["reserve-stock", "authorise-payment", "book-shipment", "capture-payment", "notify-customer"]
OUTAGE = TransientFailure("the service is away")


@pytest.fixture
def shop(sas, services, transactional_db, settings):
    a_product()
    settings.SHOP_CAPTURE = codes.AFTER_BOOKING
    settings.PAYMENT_ACTION_WITHIN, settings.PAYMENT_LOOK_AFTER = 600.0, 60.0
    settings.BANK_ACCOUNT = "Harbour Goods, IT60"
    settings.EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
    return sas


def intent_of(key: str) -> str:
    return str(testing.step(key, codes.AUTHORISE).result["intent"])


def reserved(shop, **changes) -> str:
    """The public id of an order whose amount is reserved, and whose goods can not be booked."""
    key = place(shipping_address=NOWHERE, **changes)
    shop.run()
    Run(key).assert_state("Error")
    return key


def lapsed(shop, services) -> str:
    """The public id of an order that lapsed before its goods were booked."""
    key = reserved(shop)
    services.expire(intent_of(key))
    operator_verbs.resubmit(key, by="olga", reason="the address is right now", amend={"shipping_address": ADDRESS})
    shop.run()
    Run(key).assert_state("Error")
    return key


# ------------------------------------------------------------------------------------------------ the usual way


def test_an_order_is_charged_after_its_goods_are_booked(shop, services):
    key = place()
    shop.run()

    Run(key).assert_state("Processed")
    assert [step for step in shop.performed if step in STEPS] == STEPS
    assert services.charged(key) == 2580
    assert paying(key) == {"state": "paid", "action_url": None, "paid": "25.80", "refunded": "0.00"}
    rows = Effect.objects.filter(run__key=key, service="payment").values_list("operation", "outcome", "amount")
    assert set(rows) == {("create", "done", None), ("confirm", "done", None), ("capture", "done", Decimal("25.80"))}
    shop.assert_healthy()


def test_the_way_of_paying_is_the_settings_at_the_submission_and_both_ways_run_side_by_side(shop, services, settings):
    after = place()
    settings.SHOP_CAPTURE = codes.AT_ONCE
    at_once = place()
    settings.SHOP_CAPTURE = codes.AFTER_BOOKING
    transfer = place(payment_method=codes.BANK_TRANSFER)
    settings.SHOP_CAPTURE = codes.AT_ONCE
    shop.run()

    assert {run.key: run.version for run in RunRow.objects.all()} == {after: 2, at_once: 1, transfer: 1}
    for key in (after, at_once):
        Run(key).assert_state("Processed")
        assert services.charged(key) == 2580
    assert services.effects("payment", "capture", after) == 1
    assert services.effects("payment", "capture", at_once) == 0
    shop.assert_healthy()


@pytest.mark.parametrize("asked", ["later", 2, True])
def test_a_submission_with_another_way_is_kept_aside_and_names_the_field(shop, asked):
    with pytest.raises(UnreadableSubmission, match="capture: expected after-booking"):
        read(json.dumps({**PAYLOAD, "capture": asked}))


# ------------------------------------------------------------------------------------------------ reserved


def test_a_reserved_amount_is_pending_and_the_page_says_that_it_is_reserved(shop, services, client):
    key = place()
    assert "Reserve the amount on your card" in client.get(f"/orders/{key}/").text
    shop.fake("book-shipment", raises=OUTAGE, times=1)
    shop.run()

    assert paying(key) == {"state": "pending", "action_url": None, "paid": "0.00", "refunded": "0.00"}
    assert services.charged(key) == 0
    page = client.get(f"/orders/{key}/").text
    assert "The amount is reserved on your card" in page
    assert "are reserved on your card" in page
    assert "Charge your card" in page

    shop.advance("10m")
    Run(key).assert_state("Processed")
    page = client.get(f"/orders/{key}/").text
    assert "Your card was charged" in page
    assert "The amount was reserved on your card" in page
    assert "are reserved" not in page


def test_an_order_that_can_not_be_booked_keeps_its_amount_reserved_and_says_so(shop, services, client):
    key = reserved(shop)

    assert paying(key)["state"] == "pending"
    assert "are reserved on your card" in client.get(f"/orders/{key}/").text
    assert services.status(intent_of(key)) == "requires_capture"


def test_a_declined_card_is_refused_at_the_checkout_and_another_one_reserves(shop, services, client):
    key = place(payment_method=DECLINED)
    shop.run()
    assert paying(key)["state"] == state.REFUSED
    assert "Your card was declined" in client.get(f"/orders/{key}/").text

    client.post(f"/orders/{key}/payment/", {"payment_method": "pm_card_visa"})
    shop.run()

    Run(key).assert_state("Processed")
    assert services.charged(key) == 2580
    assert services.effects("payment", "capture", key) == 1


def test_an_order_that_stays_refused_is_cancelled(shop, services):
    key = place(payment_method=DECLINED)
    shop.run()
    later(shop, "4d")

    Run(key).assert_state("Cancelled")
    assert Product.objects.get().available == 50
    assert paying(key)["state"] == state.NONE


def test_a_second_factor_reserves_and_its_webhook_lets_the_order_go_on(shop, services, settings):
    key = place(payment_method=SECOND_FACTOR)
    shop.run()
    assert paying(key)["state"] == state.ACTION_REQUIRED
    services.answer_bank(paying(key)["action_url"])
    intent = testing.step(key, codes.AUTHORISE).checkpoint["intent"]

    told = tell(event("payment_intent.amount_capturable_updated", {"id": intent, "metadata": {"order": key}}))
    assert told.status_code == 200
    shop.run()

    Run(key).assert_state("Processed")
    assert services.charged(key) == 2580
    assert services.effects("payment", "confirm", key) == services.effects("payment", "capture", key) == 1
    shop.assert_healthy()


# ------------------------------------------------------------------------------------------------ released


def test_a_cancelled_order_releases_what_it_had_reserved(shop, services, client):
    key = reserved(shop)
    operator_verbs.compensate(key, by="olga", reason="it can not be delivered")
    shop.run()

    Run(key).assert_state("Cancelled")
    assert services.status(intent_of(key)) == "canceled"
    assert services.charged(key) == 0
    assert paying(key)["state"] == state.NONE
    page = client.get(f"/orders/{key}/").text
    assert "Nothing is reserved on your card any more" in page
    assert "Your card is not charged" in page
    shop.assert_healthy()


def test_an_order_undone_after_its_capture_gives_the_money_back_once(shop, services, client):
    shop.fake("notify-customer", raises=OUTAGE, times=1)
    key = place()
    shop.run()
    assert services.charged(key) == 2580
    operator_verbs.cancel(key, by="customer", reason="changed my mind")
    shop.advance("2m")

    Run(key).assert_state("Cancelled")
    assert services.charged(key) == 0
    assert services.effects("payment", "refund", key) == 1
    assert paying(key) == {"state": "refunded", "action_url": None, "paid": "25.80", "refunded": "25.80"}
    assert "goes back to your card" in client.get(f"/orders/{key}/").text
    shop.assert_healthy()


@pytest.mark.parametrize("at", ["reserve-stock", "authorise-payment", "book-shipment", "capture-payment", "notify-customer"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_cancellation_at_any_moment_leaves_no_money_with_the_shop(shop, services, at, when):
    keys: list[str] = []

    def cancels(request):
        agent = get_agent(request.definition.agent)
        if when == "before":
            operator_verbs.cancel(keys[0], by="customer", reason="changed my mind")
        result = agent.perform(request)
        if when == "after":
            operator_verbs.cancel(keys[0], by="customer", reason="changed my mind")
        return result

    if at == "reserve-stock":
        keys.append(place())
        if when == "before":
            operator_verbs.cancel(keys[0], by="customer", reason="changed my mind")
    else:
        shop.fake(at, does=cancels, times=1)
        keys.append(place())
    shop.advance("10m")
    if at == "reserve-stock" and when == "after":
        Run(keys[0]).assert_state("Processed")
        return
    [key] = keys

    # The last step's own end is the order's: a cancellation during it may come too late.
    ended = testing.run_of(key).process_state
    assert ended == "Cancelled" or (at == "notify-customer" and ended == "Processed")
    assert services.charged(key) == (0 if ended == "Cancelled" else 2580)
    for entry in services.ledger("payment", key):
        if entry["operation"] == "create":
            assert services.status(entry["intent"]) != "requires_capture"
    shop.assert_healthy()


# ------------------------------------------------------------------------------------------------ lapsed


def test_a_lapsed_amount_stops_the_order_and_tells_operator_and_customer_what_to_do(shop, services, client):
    key = lapsed(shop, services)

    alert = RunRow.objects.get(key=key).alerts.get(closed_at=None)
    assert (alert.step, alert.code) == (codes.CAPTURE, codes.AUTHORISATION_LAPSED)
    assert "resubmit this step to charge the payment method now" in alert.message
    assert paying(key) == {"state": "refused", "action_url": None, "paid": "0.00", "refunded": "0.00"}
    page = client.get(f"/orders/{key}/").text
    assert "can not be charged any more" in page
    assert "Pay in another way" in page
    assert services.charged(key) == 0


def test_the_customer_pays_again_after_a_lapse_and_nothing_else_runs_again(shop, services, client):
    key = lapsed(shop, services)
    shop.performed.clear()
    client.post(f"/orders/{key}/payment/", {"payment_method": "pm_card_visa"})
    shop.run()

    Run(key).assert_state("Processed")
    assert shop.performed == ["capture-payment", "notify-customer"]
    assert services.charged(key) == 2580
    assert services.effects("carrier", "create", key) == 1
    shop.assert_healthy()


def test_the_customer_pays_again_by_transfer_after_a_lapse(shop, services, client):
    key = lapsed(shop, services)
    client.post(f"/orders/{key}/payment/", {"payment_method": codes.BANK_TRANSFER})
    shop.run()
    assert "Please transfer" in client.get(f"/orders/{key}/").text
    send_signal(key, codes.TRANSFER, {"amount": "25.80", "currency": "EUR", "reference": "1"}, key="1")
    shop.run()

    Run(key).assert_state("Processed")
    assert services.charged(key) == 0
    assert paying(key)["paid"] == "25.80"


def test_an_order_that_stays_lapsed_is_cancelled_with_its_shipment(shop, services):
    key = lapsed(shop, services)
    later(shop, "4d")

    Run(key).assert_state("Cancelled")
    assert services.effects("carrier", "delete", key) == 1
    assert services.charged(key) == 0
    assert Product.objects.get().available == 50


def test_a_refused_card_after_a_lapse_is_refused_again(shop, services, client):
    key = lapsed(shop, services)
    client.post(f"/orders/{key}/payment/", {"payment_method": DECLINED})
    shop.run()

    assert paying(key)["state"] == state.REFUSED
    assert "Your card was declined" in client.get(f"/orders/{key}/").text
    assert services.charged(key) == 0

    client.post(f"/orders/{key}/payment/", {"payment_method": "pm_card_visa"})
    shop.run()
    Run(key).assert_state("Processed")
    assert services.charged(key) == 2580


def test_guests_and_strangers_read_nothing_about_reservations(shop, services):
    key = reserved(shop)

    assert intent_of(key) not in Client().get(f"/orders/{key}/").text
