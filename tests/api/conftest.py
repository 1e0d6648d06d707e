"""Fixtures of the API's tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from rest_framework.test import APIClient

from orders.models import Product
from supervision.wakeup import hints
from tests.shopping import a_product, account, signed_in


@pytest.fixture(autouse=True)
def _quiet(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """No throttle and no hints, unless the test is about them."""
    settings.API_THROTTLE = None
    monkeypatch.setattr(hints, "enabled", False)


@pytest.fixture
def mug(db: Any) -> Product:
    """The blue mug: 12.90 EUR, 50 pieces."""
    return a_product()


@pytest.fixture
def customer(mug: Product) -> APIClient:
    """A customer, with a mug to buy."""
    return signed_in("ada", "customer")


@pytest.fixture
def shop_server(mug: Product) -> APIClient:
    """A client account: a shop's own server."""
    return signed_in("server", "client")


operator = account("olga", "operator")
viewer = account("vera", "viewer")  # may read and not act


@pytest.fixture
def throttled(settings: Any, db: Any) -> Iterator[Any]:
    """The settings; the table of request counts is empty before and after the test."""
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE orders_requestcount")
    yield settings
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE orders_requestcount")
