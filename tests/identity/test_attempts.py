"""Guessing passwords: it stops before a password is hashed, and locks no owner out."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.contrib.auth.models import User
from django.test import Client

from tests.orders.test_accounts import deliver
from tests.shopping import PASSWORD

pytestmark = [pytest.mark.usefixtures("no_hints"), pytest.mark.django_db]
SHOP, CONSOLE = "/accounts/login/", "/admin/login/"


def sign_in(client: Client, name: str = "ada", password: str = PASSWORD, page: str = SHOP, **more: str) -> int:
    return client.post(page, {"username": name, "password": password}, **more).status_code


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every password that was hashed."""
    passwords: list[str] = []
    original = PBKDF2PasswordHasher.encode

    def encode(self: PBKDF2PasswordHasher, password: str, *args: object) -> str:
        passwords.append(password)
        return original(self, password, *args)

    monkeypatch.setattr(PBKDF2PasswordHasher, "encode", encode)
    return passwords


@pytest.mark.parametrize("page", [SHOP, CONSOLE])
def test_guessing_stops_at_the_tenth_password_before_it_is_hashed(page: str, client, ada, ops, hashed) -> None:
    for number in range(9):
        assert sign_in(client, "ops", f"guess-{number}", page) == 200

    answer = client.post(page, {"username": "ops", "password": "operators-own-password"})

    assert answer.status_code == 429
    assert 0 < int(answer.headers["Retry-After"]) <= 900
    assert "Too many passwords were tried. Try again in 15 minutes, or choose a new password by mail." in answer.text
    assert "/accounts/password_reset/" in answer.text
    assert "operators-own-password" not in hashed
    assert "_auth_user_id" not in client.session
    assert sign_in(client, "ada", PASSWORD) == 302  # another account, from the same network


def test_the_mail_address_and_the_username_have_one_limit(client, ada) -> None:
    names = ["ada", "ada@example.com", "ADA@example.com"]
    for number in range(9):
        sign_in(client, names[number % 3], "wrong")

    assert [sign_in(client, name) for name in names] == [429, 429, 429]


def test_a_name_without_an_account_is_limited_alike(client, ada) -> None:
    answers = {name: [sign_in(client, name, "wrong") for _ in range(11)] for name in ("ada", "eve", "eve@example.com")}

    assert answers["ada"] == answers["eve"] == answers["eve@example.com"] == [200] * 9 + [429] * 2


def test_passwords_of_many_accounts_are_not_tried_from_one_network(client, ada) -> None:
    for number in range(50):
        sign_in(client, f"user{number}", "Winter2026!")

    assert sign_in(client) == 429
    assert sign_in(client, REMOTE_ADDR="10.0.0.9") == 302


def test_a_right_password_is_given_back(client, ada) -> None:
    assert [sign_in(Client()) for _ in range(60)] == [302] * 60


def test_strangers_of_many_networks_do_not_lock_out_a_browser_that_its_owner_uses(client, ada) -> None:
    assert sign_in(client, REMOTE_ADDR="10.9.9.9") == 302
    client.post("/accounts/logout/")

    for network in range(7):
        for number in range(9):
            sign_in(Client(), "ada", f"guess-{number}", REMOTE_ADDR=f"10.0.{network}.1")

    assert sign_in(Client(), REMOTE_ADDR="10.8.8.8") == 429
    assert sign_in(client, REMOTE_ADDR="10.0.0.1") == 302  # from the strangers' own network, too
    client.post("/accounts/logout/")
    assert [sign_in(client, "ada", "wrong") for _ in range(10)] == [200] * 9 + [429]  # its own limit


def test_one_network_alone_does_not_use_up_the_account(client, ada) -> None:
    for _ in range(80):
        sign_in(Client(), "ada", "wrong", REMOTE_ADDR="10.0.0.1")

    assert sign_in(Client(), REMOTE_ADDR="10.0.0.2") == 302


def test_a_browser_in_which_the_owner_changes_the_password_stays_known(client, ada) -> None:
    sign_in(client)
    new = {"old_password": PASSWORD, "new_password1": "entirely-new-words", "new_password2": "entirely-new-words"}
    assert client.post("/accounts/password_change/", new).status_code == 302
    client.post("/accounts/logout/")
    for _ in range(10):
        sign_in(Client(), "ada", "wrong")

    assert sign_in(Client(), "ada", "entirely-new-words") == 429
    assert sign_in(client, "ada", "entirely-new-words") == 302


@pytest.mark.parametrize("change", ["", "x", "another account", "new password"])
def test_a_cookie_that_is_not_the_accounts_own_makes_no_browser_known(change: str, client, ada, bob) -> None:
    sign_in(client, "bob" if change == "another account" else "ada")
    client.post("/accounts/logout/")
    cookie = client.cookies["known-browser"].value
    thief = Client()
    thief.cookies["known-browser"] = cookie[:-1] + change if change in ("", "x") else cookie
    if change == "new password":
        ada.set_password("another-password-now")
        ada.save()

    for number in range(9):
        sign_in(Client(), "ada", f"guess-{number}")

    assert sign_in(thief, "ada", "another-password-now" if change == "new password" else PASSWORD) == 429


def test_a_new_password_by_mail_makes_the_browser_known(client, ada, mailoutbox) -> None:
    client.post("/accounts/password_reset/", {"email": "ada@example.com"})
    deliver()
    link = re.search(r"https?://[^/\s]+(/accounts/reset/\S+)", mailoutbox[-1].body).group(1)
    for _ in range(9):
        sign_in(client, "ada", "wrong")
    form = client.get(link, follow=True).redirect_chain[-1][0]

    client.post(form, {"new_password1": "chosen-by-the-owner", "new_password2": "chosen-by-the-owner"})

    assert sign_in(Client(), "ada", "chosen-by-the-owner") == 429
    assert sign_in(client, "ada", "chosen-by-the-owner") == 302


@pytest.mark.parametrize("page", ["/accounts/password_change/", "/admin/password_change/"])
def test_an_open_browser_does_not_tell_the_password(page: str, client, ops) -> None:
    client.force_login(ops, "django.contrib.auth.backends.ModelBackend")
    new = {"new_password1": "entirely-new-words", "new_password2": "entirely-new-words"}
    for _ in range(9):
        assert client.post(page, {"old_password": "wrong", **new}).status_code == 200

    answer = client.post(page, {"old_password": "operators-own-password", **new})

    assert answer.status_code == 429
    assert "Too many passwords were tried" in answer.text
    assert User.objects.get(pk=ops.pk).check_password("operators-own-password")


def test_the_page_of_the_mail_address_is_limited_and_its_right_passwords_are_given_back(client, ada) -> None:
    client.force_login(ada, "django.contrib.auth.backends.ModelBackend")

    def change(password: str, number: int = 0) -> int:
        return client.post("/accounts/email/", {"email": f"ada{number}@example.com", "password": password}).status_code

    assert [change(PASSWORD, number) for number in range(12)] == [302] * 12
    assert [change("wrong") for _ in range(10)][-2:] == [400, 429]
    assert change(PASSWORD) == 429


def test_few_mails_with_a_link_for_a_new_password_go_to_one_address(client, ada, mailoutbox) -> None:
    answers = [
        client.post("/accounts/password_reset/", {"email": "ada@example.com"}, REMOTE_ADDR=f"10.0.0.{number}") for number in range(7)
    ]

    assert [answer.status_code for answer in answers] == [302] * 5 + [200] * 2
    assert "We have sent several mails to this address already" in answers[-1].text
    deliver()
    assert len(mailoutbox) == 5


def test_one_network_asks_for_few_mails(client, ada, mailoutbox) -> None:
    for number in range(25):
        User.objects.create_user(f"user{number}", f"user{number}@example.com", PASSWORD)
        client.post("/accounts/password_reset/", {"email": f"user{number}@example.com"})

    deliver()
    assert len(mailoutbox) == 20
