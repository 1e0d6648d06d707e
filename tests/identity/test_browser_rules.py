"""What each answer tells the browser, and how passwords and sessions behave: what docs/security.md promises of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.contrib.auth.password_validation import validate_password
from django.contrib.sessions.models import Session
from django.core.exceptions import ValidationError
from django.test import Client
from knox.models import AuthToken
from rest_framework import serializers

from orders.identity.passwords import WORDS
from orders.validation import read_order
from tests.shopping import PASSWORD

pytestmark = pytest.mark.django_db
ROOT = Path(__file__).resolve().parents[2]
PAGES = ["/", "/accounts/login/", "/admin/login/", "/api/v1/products/", "/api/schema/", "/healthz", "/nothing/", "/api/nothing/"]


@pytest.fixture
def browser(client: Client, ada: User) -> Client:
    """Ada's browser, signed in."""
    client.post("/accounts/login/", {"username": "ada", "password": PASSWORD})
    return client


def opens(client: Client) -> bool:
    return client.get("/accounts/").status_code == 200


@pytest.mark.parametrize("path", PAGES)
def test_every_answer_tells_the_browser_what_it_may_do(client, path):
    headers = client.get(path).headers

    assert (headers["X-Content-Type-Options"], headers["Referrer-Policy"]) == ("nosniff", "same-origin")
    assert headers["Cross-Origin-Opener-Policy"] == "same-origin"
    for rule in ("object-src 'none'", "base-uri 'none'", "frame-ancestors 'none'"):
        assert rule in headers["Content-Security-Policy"]
    assert "unsafe-eval" not in headers["Content-Security-Policy"]
    assert re.match(r"text/html; charset=utf-8|application/(\w+\+)?json|application/vnd\.oai", headers["Content-Type"])


def test_no_other_site_is_let_in_by_cors(client):
    answers = [client.get(path, headers={"Origin": "https://evil.example"}) for path in ("/", "/api/v1/products/")]

    assert [name for answer in answers for name in answer.headers if name.lower().startswith("access-control")] == []


def test_what_an_account_sees_is_stored_by_no_browser_and_no_proxy(browser):
    with_a_token = Client(headers={"Authorization": "Token wrong"})

    answers = [browser.get(path) for path in ("/", "/orders/", "/accounts/", "/accounts/password_change/", "/accounts/addresses/")]

    for answer in [*answers, with_a_token.get("/api/v1/orders/")]:
        assert "no-store" in answer.headers["Cache-Control"]


def test_signing_out_clears_what_the_browser_keeps(browser):
    assert browser.post("/accounts/logout/").headers["Clear-Site-Data"] == '"cache"'


@pytest.mark.parametrize("path", ["/", "/orders/", "/accounts/", "/accounts/password_change/", "/accounts/tokens/", "/nothing/"])
def test_each_page_of_an_account_offers_the_way_out(browser, path):
    assert '<form method="post" action="/accounts/logout/">' in browser.get(path).text


def test_signing_in_gives_the_session_another_name(client, ada):
    client.get("/accounts/login/")
    session = client.session
    session["cart"] = {}
    session.save()
    before = session.session_key
    client.cookies["sessionid"] = before

    client.post("/accounts/login/", {"username": "ada", "password": PASSWORD})

    after = client.cookies["sessionid"].value
    assert after != before
    assert re.fullmatch(r"[a-z0-9]{32}", after), "36 letters and digits, 32 times: 165 bits"
    assert not Session.objects.filter(session_key=before).exists()


def test_a_session_ends_on_the_server_when_its_owner_signs_out(browser):
    thief = Client()
    thief.cookies["sessionid"] = browser.cookies["sessionid"].value
    assert opens(thief)

    browser.post("/accounts/logout/")

    assert not opens(thief)


def test_a_new_password_ends_every_other_session(browser, ada):
    other = Client()
    other.force_login(ada)
    new = {"old_password": "wrong", "new_password1": "another-horse-battery", "new_password2": "another-horse-battery"}

    assert browser.post("/accounts/password_change/", new).status_code == 200, "the present password is asked for"
    assert opens(other)
    browser.post("/accounts/password_change/", new | {"old_password": PASSWORD})

    assert (opens(browser), opens(other)) == (True, False)


def test_an_account_that_is_switched_off_loses_its_session_and_its_tokens(browser, ada):
    _kept, token = AuthToken.objects.create(ada)
    User.objects.filter(pk=ada.pk).update(is_active=False)

    assert not opens(browser)
    assert Client(headers={"Authorization": f"Token {token}"}).get("/api/v1/orders/").status_code == 401


@pytest.mark.parametrize(
    "password",
    ["short7x", "password1", "iloveyou", "82736450912837", "Harbour-Goods-2026", "customer123!", "OrdersOperator99", "ada@example.co"],
)
def test_a_password_that_is_short_common_or_names_the_shop_is_refused(password):
    with pytest.raises(ValidationError):
        validate_password(password, User(username="ada", email="ada@example.com"))


def test_the_words_of_the_shops_address_are_no_password(settings):
    settings.PUBLIC_URL = "https://nordwind.example:8443"

    with pytest.raises(ValidationError, match="too common"):
        validate_password("Nordwind-2026!")
    validate_password("nordwind-und-sonne")


def test_the_page_lists_the_words_that_are_no_password():
    said = " ".join((ROOT / "docs" / "security.md").read_text().partition("### Passwords")[2].partition("###")[0].split())

    assert ", ".join(WORDS) in said


@pytest.mark.parametrize("password", [" two spaces  at the ends ", "ünïcödé 密碼 пароль 🐴", "UPPERCASE ONLY PLEASE", "long " * 40])
def test_a_password_may_be_long_and_of_any_characters_and_is_not_cut(password):
    validate_password(password)
    account = User(username="grace")
    account.set_password(password)

    assert account.check_password(password)
    assert not any(account.check_password(other) for other in (password.strip(), password[:64], password.lower()) if other != password)


@pytest.mark.parametrize("path", ["/accounts/login/", "/admin/login/", "/accounts/signup/"])
def test_a_password_is_hidden_and_may_be_filled_in_by_a_program(client, path):
    fields = re.findall(r'<input[^>]*name="(?:new_)?password\d?"[^>]*>', client.get(path).text)

    assert fields
    for field in fields:
        assert 'type="password"' in field
        assert "onpaste" not in field
        assert 'autocomplete="off"' not in field


def test_no_account_is_there_before_one_is_made():
    assert not User.objects.exists()


@pytest.mark.parametrize("path", ["/.git/HEAD", "/manage.py", "/static/", "/static/orders/", "/static/../manage.py"])
def test_no_file_of_the_project_is_served(client, path):
    assert client.get(path).status_code == 404


def test_scripts_keep_nothing_in_the_browser_but_a_choice_of_keys():
    scripts = [path for app in ("orders", "supervision") for path in (ROOT / app / "static").rglob("*.js") if "vendor" not in path.parts]
    storage = re.compile(r"(?:local|session)Storage\S*?\([^,)]*|indexedDB|document\.cookie")
    kept = {use for path in scripts for use in storage.findall(path.read_text())}

    assert scripts
    assert kept == {'localStorage.getItem("sc-keys"', 'localStorage.setItem("sc-keys"'}


@pytest.mark.parametrize("mail", ["ada@example.com\nBcc: all@example.com", "ada@example.com\r\n\r\nBuy!", "ada@example.com\x00"])
def test_a_line_break_becomes_no_header_of_a_mail(mail):
    with pytest.raises(serializers.ValidationError) as refusal:
        read_order({"email": mail})

    assert "Control characters" in str(refusal.value.detail["email"])
