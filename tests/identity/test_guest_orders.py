"""Guests place few orders, because each order sends mails; an account places as many as API_THROTTLE lets it."""

from __future__ import annotations

import pytest
from django.contrib.sessions.models import Session
from django.test import Client

from supervision.models import Submission
from tests.orders.test_checkout import a_checkout
from tests.shopping import PASSWORD

pytestmark = [pytest.mark.usefixtures("no_hints"), pytest.mark.django_db]


def check_out(client: Client, **changes: str) -> int:
    network = changes.pop("network", "127.0.0.1")
    return client.post("/checkout/", a_checkout(client) | changes, REMOTE_ADDR=network).status_code


def test_a_guest_orders_a_few_times_then_signs_in(client, mug, ada, settings) -> None:
    settings.GUEST_ORDERS = "20/h"
    for number in range(20):
        assert check_out(Client(), email=f"guest{number}@example.com") == 302
    form = a_checkout(client)

    answer = client.post("/checkout/", form)

    assert answer.status_code == 429
    assert "Many orders were placed from here within an hour." in answer.text
    assert form["line1"] in answer.text
    assert Submission.objects.count() == 20
    client.post("/accounts/login/", {"username": "ada", "password": PASSWORD})
    assert check_out(client) == 302


def test_few_orders_of_guests_have_one_mail_address(mug, settings) -> None:
    settings.GUEST_ORDERS = "20/h"

    answers = [
        check_out(Client(), email=("Victim", "victim")[number % 2] + "@example.com", network=f"10.0.0.{number}") for number in range(7)
    ]

    assert answers == [302] * 5 + [429] * 2


@pytest.mark.parametrize("who", ["guest", "account"])
def test_a_second_click_at_the_limit_is_answered_with_the_order_of_the_first(client, mug, ada, settings, who) -> None:
    settings.GUEST_ORDERS = settings.API_THROTTLE = "1/h"
    if who == "account":
        client.force_login(ada)
    form = a_checkout(client)
    mine = Session.objects.filter(pk=client.session.session_key)
    before = mine.get().session_data
    first = client.post("/checkout/", form)
    mine.update(session_data=before)  # the second request has loaded the session before the first one saved it

    second = client.post("/checkout/", form)

    assert (second.status_code, second.headers.get("Location")) == (302, first.headers["Location"])
    assert client.post("/checkout/", a_checkout(client)).status_code == 429
    assert Submission.objects.count() == 1


def test_an_account_orders_as_often_as_api_throttle_lets_it(client, mug, ada, settings) -> None:
    settings.API_THROTTLE = "3/h"
    client.force_login(ada)
    assert [check_out(client, email=f"friend{number}@example.com") for number in range(3)] == [302] * 3
    form = a_checkout(client)

    answer = client.post("/checkout/", form)

    assert answer.status_code == 429
    assert "You have placed many orders in a short time." in answer.text
    assert form["line1"] in answer.text
    assert Submission.objects.count() == 3
    settings.API_THROTTLE = None
    assert client.post("/checkout/", form).status_code == 302
