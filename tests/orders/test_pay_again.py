"""Paying in another way after a refusal: by the owner or with the order's link, only then, once for each refusal, and bounded."""

from __future__ import annotations

import pytest
from django.test import Client

from orders.payments import state
from orders.payments.again import pay_again
from orders.queries import order_view
from supervision import testing
from supervision.errors import ChangedMeanwhile
from supervision.testkit.run import Run
from tests.shopping import DECLINED, a_client, a_product, an_account, place
from tests.support.console import person
from tests.support.simulators import SECOND_FACTOR


@pytest.fixture
def shop(sas, services, transactional_db, settings):
    a_product()
    settings.API_THROTTLE = None
    return sas


def refused(shop, account=None, **changes) -> str:
    key = place(account, **{"payment_method": DECLINED, **changes})
    shop.run()
    assert paying(key) == state.REFUSED
    return key


def paying(key: str) -> str:
    view = order_view(key)
    assert view is not None
    return view.payment.state


def path(key: str) -> str:
    return f"/api/v1/orders/{key}/payment/"


def test_the_owner_pays_with_another_card_and_only_that_step_runs_again(shop, services):
    ada = an_account("ada", "customer")
    key = refused(shop, ada)

    answer = a_client(ada).post(path(key), {"payment_method": "pm_card_visa"})

    assert (answer.status_code, answer.json()["payment"]["state"]) == (202, "pending")
    shop.performed.clear()
    shop.run()
    Run(key).assert_state("Processed")
    assert "reserve-stock" not in shop.performed
    assert services.charged(key) == 2580
    assert services.effects("payment", "confirm", key) == 1
    assert any("the customer pays again" in line for line in Run(key).history)
    shop.assert_healthy()


@pytest.mark.parametrize("method", [DECLINED, "pm_unknown", SECOND_FACTOR])
def test_a_refused_order_that_is_cancelled_leaves_nothing_outside(shop, services, method):
    key = place(payment_method=method)
    shop.run()
    if method == SECOND_FACTOR:
        services.answer_bank(order_view(key).payment.action_url, "refuse")
        shop.advance("301s")
    assert paying(key) == state.REFUSED

    Run(key).cancel()
    shop.run()

    Run(key).assert_state("Cancelled")
    shop.assert_healthy()


def test_an_order_whose_payment_was_not_refused_answers_409(shop):
    ada = an_account("ada", "customer")
    client = a_client(ada)
    waiting, paid, cancelled = place(ada), place(ada), refused(shop, ada)
    Run(cancelled).cancel()

    answers = [client.post(path(key), {"payment_method": "pm_card_visa"}) for key in (waiting, paid, cancelled)]

    assert [answer.status_code for answer in answers] == [409] * 3
    assert {answer.json()["code"] for answer in answers} == {"payment_not_refused"}


def test_a_payment_that_may_still_be_charged_is_not_paid_again(shop, services):
    """The step has stopped with an unknown effect: an operator has to look, and the customer must not pay twice."""
    ada = an_account("ada", "customer")
    key = place(ada)
    services.faults("payment", "error_before")
    shop.others_succeed("charge-payment")
    for _ in range(8):
        shop.advance("5m")
        shop.others_succeed("charge-payment")
    services.clear()
    Run(key).assert_state("Error")

    assert paying(key) == state.PENDING
    assert a_client(ada).post(path(key), {"payment_method": "pm_card_visa"}).status_code == 409


@pytest.mark.parametrize(
    "body", [{}, {"payment_method": "4242"}, {"payment_method": ["pm_x"]}, {"payment_method": "pm_card_visa", "amount": "1"}, []]
)
def test_a_wrong_request_is_refused_by_the_name_of_its_field(shop, body):
    ada = an_account("ada", "customer")
    key = refused(shop, ada)

    answer = a_client(ada).post(path(key), body)

    assert answer.status_code == 400
    assert set(answer.json()["errors"]) <= {"payment_method", "amount", "non_field_errors"}
    assert paying(key) == state.REFUSED


def test_strangers_cannot_pay_and_cannot_tell_the_order_from_none(shop):
    key = refused(shop, an_account("ada", "customer"))
    bob = a_client(an_account("bob", "customer"))

    assert bob.post(path(key), {"payment_method": "pm_card_visa"}).status_code == 404
    assert a_client().post(path(key), {"payment_method": "pm_card_visa"}).status_code == 401
    assert Client().post(f"/orders/{key}/payment/", {"payment_method": "pm_card_visa"}).status_code == 404
    assert paying(key) == state.REFUSED


def test_of_two_requests_at_once_one_wins_and_the_order_is_charged_once(shop, services):
    ada = an_account("ada", "customer")
    key, clients = refused(shop, ada), [a_client(ada) for _ in range(4)]

    answers = testing.at_once(*[lambda one=one: one.post(path(key), {"payment_method": "pm_card_visa"}).status_code for one in clients])

    assert sorted(answers) == [202, 409, 409, 409]
    shop.run()
    assert services.charged(key) == 2580
    assert services.effects("payment", "confirm", key) == 1


def test_a_request_that_saw_an_earlier_refusal_changes_nothing(shop, services):
    key = refused(shop)
    seen = order_view(key)
    pay_again(seen, DECLINED, by="customer")
    shop.run()

    with pytest.raises(ChangedMeanwhile):
        pay_again(seen, "pm_card_visa", by="customer")
    shop.run()
    assert services.charged(key) == 0


def test_who_may_see_an_order_may_not_pay_it(shop):
    key = refused(shop, an_account("ada", "customer"))
    vera = person("vera", "viewer")
    browser = Client()
    browser.force_login(vera)

    assert 'name="payment_method"' not in browser.get(f"/orders/{key}/").text
    assert browser.post(f"/orders/{key}/payment/", {"payment_method": "pm_card_visa"}).status_code == 404
    assert paying(key) == state.REFUSED


def test_the_number_of_tries_is_bounded(shop, services, settings):
    settings.PAYMENT_TRIES = 2
    ada = an_account("ada", "customer")
    client, key = a_client(ada), refused(shop, ada)
    for _ in range(2):
        assert client.post(path(key), {"payment_method": DECLINED}).status_code == 202
        shop.run()

    answer = client.post(path(key), {"payment_method": "pm_card_visa"})

    assert (answer.status_code, answer.json()["code"]) == (409, "too_many_payments")
    assert services.charged(key) == 0
    browser = Client()
    browser.force_login(ada)
    assert "payment_method" not in browser.get(f"/orders/{key}/").text


def test_a_guest_pays_with_the_link_of_the_order(shop, services, client):
    key = refused(shop)
    page = client.get(f"/orders/{key}/").text
    assert f'action="/orders/{key}/payment/"' in page
    assert 'http-equiv="refresh"' not in page, "it would take the choice away from a customer without JavaScript"
    assert "Pay in another way" in client.get(f"/orders/{key}/live/").text

    answer = client.post(f"/orders/{key}/payment/", {"payment_method": SECOND_FACTOR}, follow=True)

    assert "charging your payment again" in answer.text
    shop.run()
    page = client.get(f"/orders/{key}/").text
    assert "Please confirm your payment" in page
    assert 'name="payment_method"' not in page
    view = order_view(key)
    assert view is not None
    services.answer_bank(view.payment.action_url)
    shop.advance("301s")
    Run(key).assert_state("Processed")
    assert services.charged(key) == 2580


@pytest.mark.parametrize("method", ["", "pm_unknown"])
def test_a_choice_that_the_form_does_not_offer_changes_nothing(shop, client, method):
    key = refused(shop)

    answer = client.post(f"/orders/{key}/payment/", {"payment_method": method}, follow=True)

    assert "Choose how you want to pay" in answer.text
    assert paying(key) == state.REFUSED


def test_every_refusal_of_a_second_factor_can_be_paid_again(shop, services, client, settings):
    settings.PAYMENT_LOOK_AFTER, settings.PAYMENT_ACTION_WITHIN = 60.0, 300.0
    key = place(payment_method=SECOND_FACTOR)
    shop.run()
    for word in ("refuse", "wait"):
        url = order_view(key).payment.action_url
        if word == "refuse":
            services.answer_bank(url, word)
        shop.advance("61s" if word == "refuse" else "6m")
        assert paying(key) == state.REFUSED
        client.post(f"/orders/{key}/payment/", {"payment_method": SECOND_FACTOR})
        shop.run()
        assert paying(key) == state.ACTION_REQUIRED
    services.answer_bank(order_view(key).payment.action_url)
    shop.advance("61s")

    Run(key).assert_state("Processed")
    assert services.charged(key) == 2580
    shop.assert_healthy()
