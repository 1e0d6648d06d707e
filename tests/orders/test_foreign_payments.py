"""A result by hand that names the payment of another order: nothing of that payment is charged, released or refunded."""

from __future__ import annotations

import pytest

from orders.agents.payment import PaymentAgent
from orders.gateways.payment_events import Event
from orders.models import PaymentAdjustment
from orders.payments import codes, events
from supervision import PermanentFailure, testing
from supervision.errors import Refused
from supervision.operations import completing, operator_verbs, pauses
from supervision.testkit.run import Run
from tests.orders.test_bank_transfer import shop
from tests.orders.test_returns import asked, goods
from tests.shopping import a_client, a_product, an_account, place
from tests.support.requests import StepOfOrder

__all__ = ["shop"]
PIN = [{"sku": "PIN", "quantity": 1}]
agent = PaymentAgent()


@pytest.fixture
def friend(shop) -> str:
    """The public id of an order over 25.80 EUR that was paid by card."""
    a_product("PIN", price="1.00")
    key = place()
    shop.run()
    return key


def intent_of(key: str) -> str:
    return str(testing.step(key, "charge-payment").result["intent"])


def paid_by_hand(shop, friend: str) -> str:
    """The public id of an order whose operator has named the friend's charge as its payment."""
    key = place(payment_method=codes.BANK_TRANSFER, lines=PIN)
    shop.run()
    completing.complete(key, by="olga", reason="paid by card", result={"intent": intent_of(friend)})
    return key


def test_an_undo_refunds_nothing_of_it_and_stops_for_an_operator(shop, friend, services):
    pauses.pause("agent", "shipping", reason="stocktaking", by="olga")
    key = paid_by_hand(shop, friend)
    shop.run()
    operator_verbs.cancel(key, by="olga", reason="not wanted")
    pauses.lift("agent", "shipping", by="olga")
    shop.run()

    assert services.charged(friend) == 2580
    Run(key).assert_state("Error")
    undo = testing.step(key, "charge-payment", "undo")
    assert f"{intent_of(friend)} was made for another order, {friend}" in undo.last_error
    completing.complete(key, by="olga", reason="nothing was paid", result={})
    shop.run()
    Run(key).assert_state("Cancelled")


def test_a_refund_takes_nothing_of_it(shop, friend, services):
    key = paid_by_hand(shop, friend)
    shop.run()
    olga = a_client(an_account("olga", "operator"))
    made = olga.post(f"/api/v1/orders/{key}/refunds/", {"amount": "1.00", "reason": "late"}, headers={"idempotency-key": "r1"})
    shop.run()

    assert services.charged(friend) == 2580
    Run(made.json()["id"]).assert_state("Error")
    assert "was made for another order" in testing.step(made.json()["id"], "refund-part").last_error


def test_a_return_takes_nothing_of_it(shop, friend, services):
    key = place(payment_method=codes.BANK_TRANSFER)
    shop.run()
    completing.complete(key, by="olga", reason="paid by card", result={"intent": intent_of(friend)})
    shop.run()
    back = asked(shop, key, mugs=1)
    goods(shop, back, ("MUG-BLUE", 1))

    assert services.charged(friend) == 2580
    Run(back).assert_state("Error")
    assert "was made for another order" in testing.step(back, "refund-part").last_error


def test_a_capture_charges_nothing_of_it(services, order):
    other = StepOfOrder(f"{order}-other", codes.AUTHORISE, seconds=4)
    reserved = other.try_to(agent, other.request())
    later = StepOfOrder(order, codes.CAPTURE, seconds=4)
    with pytest.raises(PermanentFailure, match="was made for another order") as failure:
        later.try_to(agent, later.request(results={codes.AUTHORISE: reserved}))

    assert failure.value.code == "foreign_payment"
    assert services.status(reserved["intent"]) == "requires_capture"
    assert later.outcomes() == [("do", "capture", "refused")]


def test_an_undo_still_undoes_the_orders_own_payment(services, order):
    other = StepOfOrder(f"{order}-other", codes.AUTHORISE, seconds=4)
    reserved = other.try_to(agent, other.request())
    own = StepOfOrder(order, codes.AUTHORISE, seconds=4)
    mine = own.try_to(agent, own.request())
    with pytest.raises(PermanentFailure, match="was made for another order"):
        own.try_to(agent, own.undo(performed={"intent": reserved["intent"]}))

    assert [services.status(one["intent"]) for one in (reserved, mine)] == ["requires_capture", "canceled"]


def dispute(order: str, intent: str) -> None:
    told = {"kind": "dispute", "amount": 1, "currency": "EUR", "status": "lost", "gives_back": False, "rank": 2}
    PaymentAdjustment.objects.create(external_id="dp_1", intent=intent, order_key=order, **told)


def succeeded(order: str, intent: str) -> None:
    events.receive(Event("evt_1", "payment_intent.succeeded", intent, order))


@pytest.mark.parametrize("heard", [succeeded, dispute])
def test_it_is_refused_at_once_where_a_webhook_has_told_whose_it_is(shop, friend, heard):
    heard(friend, intent_of(friend))
    key = place(payment_method=codes.BANK_TRANSFER, lines=PIN)
    shop.run()

    with pytest.raises(Refused, match=f"was made for another order, {friend}") as refused:
        completing.complete(key, by="olga", reason="paid by card", result={"intent": intent_of(friend)})

    assert refused.value.code == "invalid_result"
    assert testing.step(key, "charge-payment").process_state == "Pending"


def test_a_payment_that_names_no_order_or_this_one_is_taken(shop, friend):
    key = place(payment_method=codes.BANK_TRANSFER, lines=PIN)
    shop.run()
    events.receive(Event("evt_1", "payment_intent.succeeded", "pi_people", ""))
    events.receive(Event("evt_2", "payment_intent.succeeded", "pi_people", key))

    completing.complete(key, by="olga", reason="paid by card", result={"intent": "pi_people"})
    shop.run()

    Run(key).assert_state("Processed")
