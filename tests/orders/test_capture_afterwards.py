"""What comes after an order that was charged after its booking: refunds, returns, the archive; and runs that move to this plan."""

from __future__ import annotations

from datetime import timedelta

import pytest

from orders.payments import codes, state
from orders.queries import order_view
from orders.services import cancel_order
from supervision import testing
from supervision.models import Run as RunRow
from supervision.operations import archive, moving, operator_verbs, resuming
from supervision.outbox import notifications
from supervision.testkit.run import Run
from tests.orders.test_capture import OUTAGE, lapsed, shop
from tests.orders.test_payment_hook import event, refund, tell
from tests.orders.test_returns import asked, goods
from tests.shopping import paying, place
from tests.support.simulators import SECOND_FACTOR

__all__ = ["shop"]


@pytest.fixture
def paid(shop) -> str:
    """The public id of an order that was charged after its booking."""
    key = place()
    shop.run()
    Run(key).assert_state("Processed")
    return key


def test_a_refund_made_at_the_service_is_shown(shop, paid, services, client):
    intent = testing.step(paid, codes.CAPTURE).result["intent"]
    refund(services, intent, 580)
    assert tell(event("charge.refund.updated", {"id": "x", "payment_intent": intent})).status_code == 200
    notifications.deliver_due()

    assert paying(paid) == {"state": "partly_refunded", "action_url": None, "paid": "25.80", "refunded": "5.80"}
    assert "5.80" in client.get(f"/orders/{paid}/").text


def test_a_return_gives_back_a_part_of_the_captured_payment(shop, paid, services):
    back = asked(shop, paid, mugs=1)
    goods(shop, back, ("MUG-BLUE", 1, 0))

    Run(back).assert_state("Processed")
    assert services.charged(paid) == 1290
    assert paying(paid)["state"] == "partly_refunded"


def test_an_archived_order_shows_its_payment(shop, paid):
    notifications.deliver_due()  # its invoice: an order leaves after it
    RunRow.objects.filter(key=paid).update(finished_at="2020-01-01T00:00:00Z")
    before = paying(paid)
    assert sum(moved.runs for moved in archive.batches(timedelta(days=30))) == 1

    assert not RunRow.objects.filter(key=paid).exists()
    assert paying(paid) == before


def test_the_page_of_an_order_that_is_paid_again_says_nothing_of_a_reserved_amount(shop, services, client):
    key = lapsed(shop, services)
    client.post(f"/orders/{key}/payment/", {"payment_method": SECOND_FACTOR})
    shop.run()

    view = order_view(key)
    assert (view.payment.state, view.payment.reserved) == (state.ACTION_REQUIRED, False)
    services.answer_bank(view.payment.action_url)
    shop.advance("61s")
    Run(key).assert_state("Processed")
    assert services.charged(key) == 2580


def test_an_order_that_is_paid_again_while_the_service_is_away_has_nothing_reserved(shop, services, client):
    key = lapsed(shop, services)
    services.faults("payment", "down")
    client.post(f"/orders/{key}/payment/", {"payment_method": "pm_card_visa"})
    shop.run()

    view = order_view(key)
    assert (view.payment.state, view.payment.reserved) == (state.PENDING, False)
    services.clear()
    shop.advance("10m")
    Run(key).assert_state("Processed")
    assert services.charged(key) == 2580


def test_a_failing_capture_keeps_saying_that_the_amount_is_reserved(shop, services):
    shop.fake(codes.CAPTURE, raises=OUTAGE, times=1)
    key = place()
    shop.run()

    view = order_view(key)
    assert (view.payment.state, view.payment.reserved) == (state.PENDING, True)


@pytest.mark.parametrize(("begun", "allowed"), [(False, True), (True, False)])
def test_a_run_may_move_to_the_plan_that_reserves_until_its_payment_has_begun(shop, services, settings, begun, allowed):
    settings.SHOP_CAPTURE = codes.AT_ONCE
    shop.fake("charge-payment" if begun else "reserve-stock", raises=OUTAGE, times=1)
    key = place()
    shop.run()

    assert (moving.plan(key, 2).refusals == []) is allowed
    if allowed:
        moving.move(key, by="olga", reason="charge it after the booking", version=2)
        shop.advance("10m")
        Run(key).assert_state("Processed")
        assert services.effects("payment", "capture", key) == 1
        assert services.charged(key) == 2580
        shop.assert_healthy()


@pytest.mark.parametrize("step", [codes.AUTHORISE, "book-shipment"])
def test_a_lapsed_order_that_goes_on_from_an_earlier_step_is_charged_once(shop, services, step):
    key = lapsed(shop, services)
    resuming.resume_from(key, step, by="olga", reason="reserve it again")
    shop.advance("10m")
    if step == "book-shipment":  # what had been reserved stays lapsed
        assert paying(key)["state"] == state.REFUSED
        operator_verbs.resubmit(key, by="olga", reason="charge it now")
        shop.run()

    Run(key).assert_state("Processed")
    assert services.charged(key) == 2580
    assert services.effects("payment", "capture", key) == (step == codes.AUTHORISE)
    assert paying(key)["state"] == state.PAID
    for entry in services.ledger("payment", key):
        if entry["operation"] == "create":
            assert services.status(entry["intent"]) in ("succeeded", "canceled")
    shop.assert_healthy()


def test_a_customer_who_cancels_a_reserved_order_reads_that_nothing_was_charged(shop, services, client):
    shop.fake("book-shipment", raises=OUTAGE, times=1)
    key = place()
    shop.run()
    cancel_order(key, by="customer", reason="changed my mind")
    assert "are reserved on your card" not in client.get(f"/orders/{key}/").text
    shop.advance("10m")

    Run(key).assert_state("Cancelled")
    assert "Your card is not charged" in client.get(f"/orders/{key}/").text
    assert services.status(services.ledger("payment", key)[0]["intent"]) == "canceled"


def test_an_operator_who_skips_the_capture_gives_the_goods_away_and_the_amount_is_no_longer_pending(shop, services):
    key = lapsed(shop, services)
    operator_verbs.skip(key, by="olga", reason="a present of the house")
    shop.run()

    Run(key).assert_state("Processed")
    assert paying(key) == {"state": "none", "action_url": None, "paid": "0.00", "refunded": "0.00"}
