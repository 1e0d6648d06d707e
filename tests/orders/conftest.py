"""Fixtures of the shop's tests: visitors of the shop and the console, and products."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from orders.models import Product
from tests.shopping import PASSWORD
from tests.support.people import no_hints, operator, viewer
from tests.support.requests import StepOfOrder
from tests.support.silent_names import silent

__all__ = ["no_hints", "operator", "silent", "viewer"]


@pytest.fixture
def mug(db: None) -> Product:
    return Product.objects.create(sku="MUG-BLUE", name="Blue mug", price="12.90", available=100)


@pytest.fixture
def ada(db: None) -> User:
    return User.objects.create_user("ada", "ada@example.com", PASSWORD)


@pytest.fixture
def bob(db: None) -> User:
    return User.objects.create_user("bob", "bob@example.com", PASSWORD)


@pytest.fixture
def step(order: str) -> StepOfOrder:
    """The charge of an order, for calls of the payment agent."""
    return StepOfOrder(order, "charge-payment", seconds=4)
