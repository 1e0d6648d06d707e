"""T26: the console's pages work under a policy that evaluates no text as a script, and no browser reports an error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User

from supervision import testing
from tests.browser.test_console_axe import sign_in
from tests.support import console_pages
from tests.support.console import person

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True), pytest.mark.timeout(1800)]


@pytest.fixture
def said() -> list[str]:
    """What the browser has complained of."""
    return []


@pytest.fixture
def page(chromium: Any, live_server: Any, said: list[str]) -> Iterator[Any]:
    """A page of the console, for an administrator who has not signed in yet."""
    person("olga", "operator")
    User.objects.update(is_superuser=True)
    context = chromium.new_context(base_url=live_server.url, viewport={"width": 1300, "height": 900})
    page = context.new_page()
    page.on("console", lambda one: said.append(f"{page.url}: {one.type}: {one.text}") if one.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: said.append(f"{page.url}: {error}"))
    with testing.quiet():
        yield page
        page.goto("about:blank")
    context.close()


LISTS = ("orders/order/", "supervision/incident/", "supervision/job/", "supervision/webhookendpoint/", "auth/user/", "orders/product/")
PAGES = ("", "orders/order/{order}/", "orders/product/add/", "supervision/channel/add/", "auth/user/{account}/change/", "password_change/")


def shown(page: Any, text: str) -> Any:
    """The element whose attribute of the theme has exactly this expression."""
    return page.locator(f'[x-on\\:click="{text}"]')


def test_the_pages_of_the_console_run_without_evaluating_text(page: Any, said: list[str]):
    sign_in(page)
    order = console_pages.fill()["failed"]
    account = User.objects.get()

    for address in (*LISTS, *PAGES):
        answer = page.goto(f"/admin/{address.format(order=order.pk, account=account.pk)}")
        page.wait_for_function("() => window.Alpine && !document.documentElement.hasAttribute('x-cloak')")
        assert answer.status == 200, address
        assert "unsafe-eval" not in answer.headers["content-security-policy"], address

    assert said == []


def test_what_the_theme_opens_keeps_and_searches_works(page: Any, said: list[str]):
    sign_in(page)
    page.goto("/admin/orders/product/")
    page.get_by_text("dock_to_right").first.click()
    assert page.evaluate("localStorage.getItem('sidebarDesktopOpen')") == "false"
    page.reload()
    page.get_by_text("dock_to_right").first.click()
    assert page.evaluate("localStorage.getItem('sidebarDesktopOpen')") == "true"
    shown(page, "openUserLinks = !openUserLinks").first.click()
    shown(page, "switchTheme('dark')").first.click()
    page.wait_for_function("() => document.documentElement.classList.contains('dark')")
    page.keyboard.press("Control+k")
    page.wait_for_function("() => document.activeElement.id === 'search-input-command'")
    page.evaluate("() => document.activeElement.blur()")
    page.keyboard.press("u")  # a key of the lists, which do not listen while the search is open
    page.locator("#search-input-command").focus()
    page.keyboard.type("produ")
    page.locator("#command-results-list a").first.wait_for()
    page.locator("#search-input-command").press("ArrowDown")
    with page.expect_navigation():
        page.locator("#search-input-command").press("Enter")
    page.goto("/admin/orders/product/add/")
    assert page.locator("#product_form").get_attribute("action") == "/admin/orders/product/add/"

    assert said == []
