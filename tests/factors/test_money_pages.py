"""The pages that give money back and change what was ordered ask again, and act once under the key that they had."""

from __future__ import annotations

from django.urls import reverse

from orders.models import Order, Refund
from tests.factors.test_money_verbs import kept, made_stale
from tests.orders.test_changed_lines import lines_of, stopped
from tests.orders.test_refund_parts import refunds_made
from tests.orders.test_returns import ada, delivered, shop
from tests.support.console import hidden, person

__all__ = ["ada", "delivered", "shop", "stopped"]
PROOF = {"proof-kind": "password", "proof-password": "a password for tests"}


def test_a_refund_asks_and_is_paid_once(shop, delivered, services) -> None:
    client = made_stale(person("otto", "operator"))
    page = reverse("admin:orders_order_refund", args=[Order.objects.get(public_id=delivered).pk])
    typed = {**hidden(client.get(page).text), "amount": "10.00", "reason": "a scratch"}

    asked = client.post(page, typed)

    assert (asked.status_code, Refund.objects.count()) == (403, 0)
    assert kept(asked.text).items() >= {"amount": "10.00", "reason": "a scratch", "key": typed["key"]}.items()
    for _twice in range(2):
        assert client.post(page, {**kept(asked.text), **PROOF}).status_code == 302
    shop.run()
    assert refunds_made(services, delivered) == [1000]


def test_a_change_of_lines_asks(shop, stopped) -> None:
    client = made_stale(person("otto", "operator"))
    page = reverse("admin:orders_order_lines", args=[Order.objects.get(public_id=stopped).pk])
    typed = {"line-0": "1", "line-1": "0", "reason": "by phone"}
    previewed = client.post(page, typed)
    assert previewed.status_code == 200

    asked = client.post(page, {**hidden(previewed.text), **typed})

    assert asked.status_code == 403
    assert lines_of(stopped) == {"MUG-BLUE": 2, "TOTE": 1}
    client.post(page, {**kept(asked.text), **PROOF})
    assert lines_of(stopped) == {"MUG-BLUE": 1}
