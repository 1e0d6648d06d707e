"""Second factors in a real browser: an authenticator app, a passkey of a virtual authenticator, and a verb that asks again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal import auth
from django.contrib.sessions.models import Session

from supervision import testing
from tests.browser.test_console_browser import DESK, PHONE
from tests.support import console
from tests.support.axe import findings
from tests.support.console import PASSWORD

pytestmark = [
    pytest.mark.browser,
    pytest.mark.django_db(transaction=True),
    pytest.mark.filterwarnings("ignore:No directory at"),
]
Open = Callable[..., Any]


@pytest.fixture
def browser(chromium: Any, live_server: Any, settings: Any) -> Iterator[Open]:
    """`browser()`: a page of a new browser with a virtual authenticator, whose user is verified. A script error fails the test."""
    settings.CONSOLE_SECOND_FACTOR = "required"
    console.person("olga", "operator")
    contexts, complaints = [], []

    def opened(viewport: dict[str, int] = DESK, dark: bool = False) -> Any:
        context = chromium.new_context(
            base_url=live_server.url, viewport=viewport, color_scheme="dark" if dark else "light", reduced_motion="reduce"
        )
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(f"{page.url}: {error}"))
        devtools = context.new_cdp_session(page)
        devtools.send("WebAuthn.enable")
        kind = {"protocol": "ctap2", "transport": "internal", "hasResidentKey": True, "hasUserVerification": True}
        options = {**kind, "isUserVerified": True, "automaticPresenceSimulation": True}
        devtools.send("WebAuthn.addVirtualAuthenticator", {"options": options})
        return page

    with testing.quiet():
        yield opened
    for context in contexts:
        context.close()
    assert complaints == []


def sign_in(page: Any) -> None:
    page.goto("/admin/login/?next=/admin/orders/order/")
    page.fill("[name=username]", "olga")
    page.fill("[name=password]", PASSWORD)
    page.get_by_role("button", name="Log in").click()


def sign_out(page: Any) -> None:
    page.context.clear_cookies()
    page.goto("/admin/")


def arrived(page: Any, path: str) -> None:
    page.wait_for_url(lambda url: urlsplit(url).path == path)


def shown_code(secret: str, ahead: int = 0) -> str:
    return auth.format_hotp_value(auth.hotp_value(secret, list(auth.yield_hotp_counters_from_time())[1] + ahead))


def enrol_an_app(page: Any) -> str:
    arrived(page, "/admin/second-factor/enrol/")
    page.get_by_text("The app cannot scan").click()
    secret = page.locator("#secret").inner_text()
    page.fill("#code", shown_code(secret, -1))
    page.get_by_role("button", name="Add the app").click()
    page.get_by_text("They are not shown again").wait_for()
    return str(secret)


def test_an_app_is_enrolled_and_signs_in_with_its_code(browser: Open) -> None:
    page = browser()
    sign_in(page)
    secret = enrol_an_app(page)
    assert page.locator(".sc-codes li").count() == 10
    page.get_by_role("link", name="I have kept them").click()
    arrived(page, "/admin/")

    sign_out(page)
    sign_in(page)
    arrived(page, "/admin/second-factor/")
    page.fill("#code", "000000")
    page.get_by_role("button", name="Go on").click()
    page.get_by_text("The code is not right").wait_for()
    page.fill("#code", shown_code(secret))
    page.get_by_role("button", name="Go on").click()

    arrived(page, "/admin/orders/order/")


def test_a_passkey_is_enrolled_and_signs_in_alone_and_after_the_password(browser: Open) -> None:
    page = browser()
    sign_in(page)
    arrived(page, "/admin/second-factor/enrol/")
    page.fill("#name", "my laptop")
    page.get_by_role("button", name="Add a passkey").click()
    page.get_by_text("They are not shown again").wait_for()
    assert Authenticator.objects.get(type="webauthn").wrap().is_passwordless

    sign_out(page)
    arrived(page, "/admin/login/")
    page.get_by_role("button", name="Sign in with a passkey").click()
    arrived(page, "/admin/")
    page.goto("/admin/second-factor/own/")
    page.get_by_text("my laptop").wait_for()

    sign_out(page)
    sign_in(page)
    arrived(page, "/admin/second-factor/")
    page.get_by_role("button", name="Use a passkey").click()
    arrived(page, "/admin/orders/order/")

    Authenticator.objects.all().delete()
    sign_out(page)
    page.get_by_role("button", name="Sign in with a passkey").click()
    page.get_by_text("The passkey was not accepted").wait_for()


def make_stale() -> None:
    for session in Session.objects.all():
        kept = session.get_decoded()
        if "proved" in kept:
            kept["proved"][0] -= 1000
            session.session_data = Session.get_session_store_class()().encode(kept)
            session.save()


def test_a_verb_that_moves_money_asks_again_and_keeps_the_reason(browser: Open) -> None:
    (order,) = console.fail()
    page = browser()
    sign_in(page)
    arrived(page, "/admin/second-factor/enrol/")
    page.get_by_role("button", name="Add a passkey").click()
    page.get_by_text("They are not shown again").wait_for()
    page.goto(console.verb(order, "skip"))
    page.get_by_label("Reason").fill("paid in cash,\nseen by <me>")
    make_stale()

    page.get_by_role("button", name="Skip").click()
    page.get_by_role("heading", name="Is it still you?").wait_for()
    assert console.state(order) == "Error"
    page.get_by_role("button", name="Use a passkey").click()

    arrived(page, console.page(order))
    assert console.state(order) == "Processing"
    assert page.get_by_text("seen by <me>").count() >= 1


@pytest.mark.parametrize(("viewport", "dark"), [(DESK, False), (PHONE, True)], ids=["desk-light", "phone-dark"])
def test_each_page_fits_its_screen_and_can_be_used_by_all(browser: Open, viewport: dict[str, int], dark: bool, tmp_path: Any) -> None:
    (order,) = console.fail()
    page = browser(viewport, dark)
    seen = []

    def look(name: str) -> None:
        page.screenshot(path=tmp_path / f"{name}.png", full_page=True)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
        seen.append((name, findings(page)))

    page.goto("/admin/login/?next=/admin/")
    look("login")
    sign_in(page)
    arrived(page, "/admin/second-factor/enrol/")
    look("enrol")
    enrol_an_app(page)
    look("recovery")
    page.goto("/admin/second-factor/enrol/")
    page.get_by_role("button", name="Add a passkey").click()
    arrived(page, "/admin/second-factor/own/")
    look("own")
    page.goto(console.verb(order, "skip"))
    page.get_by_label("Reason").fill("r")
    make_stale()
    page.get_by_role("button", name="Skip").click()
    page.get_by_role("heading", name="Is it still you?").wait_for()
    look("again")
    sign_out(page)
    sign_in(page)
    arrived(page, "/admin/second-factor/")
    look("ask")

    assert [(name, found) for name, found in seen if found] == []
