"""A shop with real commits in which verbs on more than 20 in any currency need a second operator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User

from tests.engine.conftest import emptied, store_database, tuned
from tests.support.console import person

__all__ = ["store_database", "tuned"]

SHOPS = ("orders_orderline", "orders_order", "orders_stockreservation", "orders_product", "knox_authtoken", "auth_user_groups")
SHOPS += ("auth_user_user_permissions",)


@pytest.fixture
def shop(store_database: None, django_db_blocker: Any, tuned: Any, settings: Any) -> Iterator[None]:
    """An empty store and no broker. An order of two mugs costs 25.80 EUR: more than the limit."""
    settings.API_THROTTLE = None
    tuned(APPROVAL_ABOVE={"": "20"})
    with emptied(django_db_blocker, *SHOPS):
        yield


@pytest.fixture
def olga(shop: None) -> User:
    """The operator who asks."""
    return person("olga", "operator")


@pytest.fixture
def bob(shop: None) -> User:
    """Another operator."""
    return person("bob", "operator")
