"""Operators' sessions end after hours, and when nothing is done; customers' do not."""

from __future__ import annotations

import time

import pytest
from django.contrib.auth.models import Permission
from django.test import Client

from tests.shopping import PASSWORD

pytestmark = pytest.mark.django_db


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch):
    """Move this process's clock forward."""
    now = time.time()

    def move(seconds: float) -> None:
        monkeypatch.setattr("orders.identity.sessions.time.time", lambda: now + seconds)

    return move


def signed_in(client: Client) -> bool:
    return client.get("/admin/password_change/").status_code == 200


@pytest.fixture
def console(client: Client, ops) -> Client:
    client.post("/accounts/login/", {"username": "ops", "password": "operators-own-password"})
    return client


def test_an_idle_session_ends_and_says_so(console, later) -> None:
    later(3500)
    assert signed_in(console)
    later(3500 + 3500)
    assert signed_in(console)
    later(3500 + 3500 + 3601)

    answer = console.get("/admin/", follow=True)

    assert "You were signed out after a while" in answer.text
    assert not signed_in(console)


@pytest.mark.parametrize("headers", [{"HX-Request": "true"}, {"X-Requested-With": "fetch"}, {"Accept": "text/event-stream"}])
def test_a_page_that_refreshes_itself_keeps_no_session_open(headers, console, later) -> None:
    for seconds in range(600, 3600, 600):
        later(seconds)
        assert console.get("/admin/password_change/", headers=headers).status_code == 200
    later(3601)

    assert not signed_in(console)


def test_a_busy_session_ends_after_twelve_hours(console, later) -> None:
    for seconds in range(1800, 43_200, 1800):
        later(seconds)
        assert signed_in(console)
    later(43_200)

    assert not signed_in(console)


def test_a_session_of_before_an_account_became_an_operators_is_limited_from_then_on(client, ada, later) -> None:
    client.post("/accounts/login/", {"username": "ada", "password": PASSWORD})
    ada.is_staff = True
    ada.save()
    assert signed_in(client)
    later(3601)

    assert not signed_in(client)


def test_a_superusers_session_is_limited_also_without_the_console(client, ada, later, settings) -> None:
    settings.CONSOLE_SECOND_FACTOR = "off"
    ada.is_superuser = True
    ada.save()
    client.post("/accounts/login/", {"username": "ada", "password": PASSWORD})
    assert client.get("/api/v1/alerts/").status_code == 200
    later(3601)

    assert client.get("/api/v1/alerts/").status_code == 401


def test_a_session_is_limited_whose_account_has_rights_without_the_console(client, ada, later, settings) -> None:
    settings.CONSOLE_SECOND_FACTOR = "off"
    ada.user_permissions.add(Permission.objects.get(content_type__app_label="supervision", codename="cancel_run"))
    client.post("/accounts/login/", {"username": "ada", "password": PASSWORD})
    assert client.get("/api/v1/orders/").status_code == 200
    later(3601)

    assert client.get("/api/v1/orders/").status_code == 401


def test_a_customers_session_lasts(client, ada, later) -> None:
    client.post("/accounts/login/", {"username": "ada", "password": PASSWORD})
    later(86_400)

    assert client.get("/accounts/").status_code == 200
