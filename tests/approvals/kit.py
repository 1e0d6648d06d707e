"""A request to a second operator."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from orders.models import Order
from supervision.errors import AwaitsApproval
from supervision.operations import operator_verbs
from tests.support import console


def ask(by: User, order: Order | None = None, reason: str = "goods were paid in cash") -> tuple[Order, int]:
    """A request to skip the payment of an order of 25.80 EUR."""
    order = order or console.fail()[0]
    with pytest.raises(AwaitsApproval) as waits:
        operator_verbs.skip(order.public_id, by=by, reason=reason)
    return order, waits.value.approval
