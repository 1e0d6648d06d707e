"""Helpers of the shop's tests: products, accounts of each group with their tokens, and order requests."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import Group, User
from knox.models import AuthToken
from rest_framework.test import APIClient

from orders import services
from orders.models import Product
from orders.queries import answer, order_view
from supervision.intake.consuming import consume_batch
from supervision.outbox import notifications

PASSWORD = "correct-horse-battery"
ADDRESS = {"name": "Ada L.", "line1": "Via Roma 1", "line2": "", "city": "Torino", "postal_code": "10121", "country": "IT"}
NOWHERE = {**ADDRESS, "postal_code": "00000"}  # the carrier does not serve it
DECLINED = "pm_card_visa_chargeDeclined"


def a_product(sku: str = "MUG-BLUE", **facts: Any) -> Product:
    """A product, by default at 12.90 EUR with 50 pieces in stock."""
    return Product.objects.create(**{"sku": sku, "name": f"Product {sku}", "price": "12.90", "available": 50, **facts})


def a_request(**changes: Any) -> dict[str, Any]:
    """A valid order request: two blue mugs."""
    request = {
        "email": "ada@example.com",
        "shipping_address": dict(ADDRESS),
        "lines": [{"sku": "MUG-BLUE", "quantity": 2}],
        "payment_method": "pm_card_visa",
    }
    return {**request, **changes}


def an_account(name: str, *groups: str) -> User:
    """An account in these groups. Missing groups are created, because an earlier test may have emptied the tables."""
    if not Group.objects.filter(name="operator").exists():
        import_module("orders.migrations.0001_squashed_0004_incidents").create_groups(apps, None)
    account = User.objects.create_user(name, f"{name}@example.com")
    account.groups.set(Group.objects.filter(name__in=groups))
    return account


def a_client(account: User | None = None) -> APIClient:
    """A client of the API, with a token if an account is given."""
    client = APIClient()
    if account is not None:
        client.credentials(HTTP_AUTHORIZATION=f"Token {AuthToken.objects.create(account)[1]}")
    return client


def signed_in(name: str, *groups: str) -> APIClient:
    """A client of the API for a new account in these groups."""
    return a_client(an_account(name, *groups))


def account(name: str, *groups: str) -> Any:
    """A fixture: a client of the API for a new account of this name in these groups."""
    return pytest.fixture(lambda db: signed_in(name, *groups))


def place(account: User | None = None, **changes: Any) -> str:
    """Place an order of two blue mugs; returns its public id."""
    return services.place_order(a_request(**changes), account=account).public_id


def order(client: APIClient, *, consumed: bool = False, **changes: Any) -> str:
    """Place an order at the API, and let a consumer take it up if `consumed`; returns its public id."""
    placed = client.post("/api/v1/orders/", a_request(**changes))
    assert placed.status_code == 202, placed.content
    if consumed:
        consume_batch(born=False)
    return str(placed.json()["id"])


def paying(key: str) -> dict[str, Any]:
    """What the shop answers about the payment of an order."""
    view = order_view(key)
    assert view is not None
    return answer(view)["payment"]


def later(shop: Any, time: str) -> None:
    """Let this time pass, and send and perform all that is due then."""
    shop.advance(time)
    while notifications.deliver_due():
        shop.run()
    shop.run()
