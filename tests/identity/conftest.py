"""Accounts with passwords, and visitors of different networks."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from tests.commands.conftest import manage
from tests.orders.conftest import ada, bob, mug
from tests.support.people import no_hints

__all__ = ["ada", "bob", "manage", "mug", "no_hints"]


@pytest.fixture
def ops(db: None) -> User:
    """An operator with a password."""
    return User.objects.create_user("ops", "ops@example.com", "operators-own-password", is_staff=True)
