"""The commands create_user, create_api_token and set_stock."""

from __future__ import annotations

import pytest
from django.contrib.auth import authenticate
from django.contrib.auth.models import User
from django.core.management.base import CommandError
from knox.auth import TokenAuthentication

from orders.models import Product
from tests.commands.conftest import Manage
from tests.support.console import group

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _groups(db: None) -> None:
    """The groups as the migrations make them, because an earlier test may have emptied the database."""
    for name in ("customer", "client", "operator", "viewer"):
        group(name)


@pytest.mark.parametrize(("group", "staff"), [("customer", False), ("client", False), ("operator", True), ("viewer", True)])
def test_create_user_puts_the_account_into_its_group(group: str, staff: bool, manage: Manage):
    said = manage("create_user", "nina", "--group", group, "--password", "pass-of-nina")

    user = authenticate(username="nina", password="pass-of-nina")
    assert user is not None
    assert [each.name for each in user.groups.all()] == [group]
    assert user.is_staff is staff
    assert not user.is_superuser
    assert "pass-of-nina" not in said.out


def test_create_user_makes_up_a_password_and_prints_it(manage: Manage):
    said = manage("create_user", "nina", "--group", "customer")

    password = said.lines[-1].removeprefix("password: ")
    assert len(password) >= 16
    assert authenticate(username="nina", password=password) is not None


@pytest.mark.parametrize("password", ["a", "password", "12345678901", "superuser-nina"])
def test_createsuperuser_takes_no_weak_password_from_the_environment(password: str, manage: Manage, monkeypatch: pytest.MonkeyPatch):
    options = ("--noinput", "--username", "superuser-nina", "--email", "nina@example.com")
    monkeypatch.setenv("DJANGO_SUPERUSER_PASSWORD", password)
    with pytest.raises(CommandError, match="password"):
        manage("createsuperuser", *options)
    assert not User.objects.exists()

    monkeypatch.setenv("DJANGO_SUPERUSER_PASSWORD", "correct-horse-battery")
    manage("createsuperuser", *options)
    assert User.objects.get().check_password("correct-horse-battery")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("nina",), "--group"),
        (("nina", "--group", "king"), "invalid choice"),
        (("nina", "--group", "customer", "--password", ""), "must not be empty"),
        (("ni na", "--group", "customer"), "valid username"),
        (("nina", "--group", "customer", "--email", "no-address"), "valid email"),
    ],
)
def test_create_user_says_what_is_wrong(arguments: tuple[str, ...], complaint: str, manage: Manage):
    with pytest.raises(CommandError, match=complaint):
        manage("create_user", *arguments)
    assert not User.objects.filter(username__startswith="ni").exists()


def test_create_user_leaves_an_account_that_exists_alone(manage: Manage):
    manage("create_user", "nina", "--group", "customer", "--password", "pass-of-nina")

    with pytest.raises(CommandError, match="exists already"):
        manage("create_user", "nina", "--group", "operator")

    assert not User.objects.get(username="nina").is_staff


def test_create_api_token_prints_a_token_alone_on_the_last_line(manage: Manage):
    user = User.objects.create_user("nina")

    said = manage("create_api_token", "nina")

    found, _ = TokenAuthentication().authenticate_credentials(said.lines[-1].encode())
    assert found == user
    assert "not shown again" in said.err


def test_create_api_token_refuses_accounts_that_cannot_use_it(manage: Manage):
    User.objects.create_user("nina", is_active=False)

    with pytest.raises(CommandError, match="not active"):
        manage("create_api_token", "nina")
    with pytest.raises(CommandError, match="no account named 'no-such-user'"):
        manage("create_api_token", "no-such-user")


def test_set_stock_sets_what_can_be_sold(manage: Manage, mug: Product):
    assert manage("set_stock", "MUG-BLUE", 7).out == "MUG-BLUE: 7 available\n"

    mug.refresh_from_db()
    assert mug.available == 7


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("MUG-BLU", 7), "did you mean MUG-BLUE"),
        (("ZZZ", 7), "no product 'ZZZ'"),
        (("MUG-BLUE", -1), "at least 0|required"),
        (("MUG-BLUE", "many"), "at least 0"),
        (("MUG-BLUE", 2**31), "more than the table can hold"),
        (("MUG-BLUE",), "N"),
    ],
)
def test_set_stock_says_what_is_wrong(arguments: tuple[object, ...], complaint: str, manage: Manage, mug: Product):
    with pytest.raises(CommandError, match=complaint):
        manage("set_stock", *arguments)
