"""Customers' actions in the storefront's tests."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User

from orders import services
from tests.shopping import a_request

PASSWORD = "correct-horse-battery"


def place(account: User | None = None, **changes: Any) -> str:
    """Place an order of two blue mugs; returns its public id."""
    return services.place_order(a_request(**changes), account=account).public_id
