"""Operators with passwords, and their codes."""

from __future__ import annotations

import pytest
from allauth.mfa.totp.internal import auth
from django.contrib.auth.models import User
from django.test import Client

from orders.factors import codes
from tests.commands.conftest import manage
from tests.support.console import group
from tests.support.people import no_hints

__all__ = ["manage", "no_hints"]
PASSWORD = "operators-own-password"
SECRET = "JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP"


@pytest.fixture
def ops(db: None) -> User:
    """An operator with a password and no second factor."""
    account = User.objects.create_user("ops", "ops@example.com", PASSWORD, is_staff=True)
    account.groups.add(group("operator"))
    return account


@pytest.fixture
def enrolled(ops: User) -> list[str]:
    """The operator has an authenticator app; the recovery codes."""
    auth.TOTP.activate(ops, SECRET)
    return codes.new_recovery_codes(ops)


def code(ahead: int = 0, secret: str = SECRET) -> str:
    """What the app shows now, or so many codes ahead."""
    counter = list(auth.yield_hotp_counters_from_time())[1] + ahead
    return auth.format_hotp_value(auth.hotp_value(secret, counter))


def sign_in(client: Client, password: str = PASSWORD):
    """Enter the name and the password at the console."""
    return client.post("/admin/login/?next=/admin/", {"username": "ops", "password": password})
