"""The order's page shows what its attempts said to payment service, carrier and mail server, and nothing of card or customer."""

from __future__ import annotations

import pytest
from django.test import Client

from orders.models import Order
from supervision.ledger import exchanges
from supervision.models import Exchange
from tests.orders.test_returns import ada, deliver, shop
from tests.shopping import place
from tests.support.console import page, person
from tests.support.shop import until

__all__ = ["ada", "shop"]


@pytest.fixture
def said(shop, ada) -> list[Exchange]:
    order = Order.objects.get(public_id=deliver(shop, ada))
    until(lambda: {one.service for one in exchanges.of(order.run_id)} == {"payment", "carrier", "mail"})
    return exchanges.of(order.run_id)


def test_every_service_is_there_and_neither_card_nor_customer(said):
    text = "\n".join(f"{one.call} {one.asked} {one.answered}" for one in said)

    assert {one.status for one in said} <= {200, 201, 250}
    assert "7980" in text
    for secret in ("pm_card_visa", "ada@example.com", "Via Roma", "Ada L.", 'client_secret": "pi', "sk_"):
        assert secret not in text


def test_they_are_folded_on_the_page_of_the_order(said, client: Client):
    client.force_login(person("olga", "operator"))

    html = client.get(page(Order.objects.get(run_id=said[0].run_id))).content.decode()

    assert html.count('<details class="sc-said">') == len(said)
    assert "Attempt 1 to payment: POST /v1/payment_intents" in html


def test_a_call_without_an_answer_is_told(shop, services, ada):
    services.faults("payment", "timeout_after_effect", latency_ms=100)
    key = place(ada)
    shop.run()
    services.clear()

    run = Order.objects.get(public_id=key).run_id
    until(lambda: any(one.status is None for one in exchanges.of(run)))
