"""Accessibility of the console: axe-core finds nothing on any of its pages, wide, and dark on a phone.

The suite looks at the few pages that together have most kinds of elements, each in one of both looks. A soak looks at all in both.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from supervision import testing
from tests.support import console_pages
from tests.support.axe import LOOKS, WIDE, findings, looking
from tests.support.console import PASSWORD, person
from tests.support.soak import sized

pytest.importorskip("playwright.sync_api", reason="needs the playwright package")
pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True), pytest.mark.timeout(4500)]


NAMES = re.compile(r"\b(?:app|model|field|column)-[\w-]+")  # classes that say which table and column it is, for scripts


MENU = "#nav-sidebar"


class Kinds(HTMLParser):
    """The kinds of elements of a page: tag, classes, role and type."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: set[tuple[Any, ...]] = set()
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        classes = frozenset(NAMES.sub("", given.get("class") or "").split())
        self.found.add((tag, classes, given.get("role"), given.get("type")))


MOST_PAGES = 12  # in the suite


def covering(pages: dict[str, set[tuple[Any, ...]]]) -> list[str]:
    """Few of these pages that together have most kinds of elements: each next one has the most kinds that are not there yet."""
    chosen: list[str] = []
    left = set().union(*pages.values())
    while left and len(chosen) < MOST_PAGES:
        chosen.append(max(pages, key=lambda address: len(pages[address] & left)))
        left -= pages[chosen[-1]]
    return chosen


def sign_in(page: Any, name: str = "olga", password: str = PASSWORD) -> None:
    page.goto("/admin/login/?next=/admin/")
    page.fill("[name=username]", name)
    page.fill("[name=password]", password)
    page.click("[type=submit]")
    page.wait_for_url("**/admin/")


def in_its_looks(page: Any, number: int) -> list[str]:
    """What is found on this page, without loading it again: in one look in the suite, in another on the next page; in all in a soak.

    The menu is the same on all pages: in the suite it is looked at on the first ones only."""
    found = []
    without = (MENU,) if number > len(LOOKS) and not sized(0, 1) else ()
    for look in LOOKS[: sized(0, len(LOOKS))] or [LOOKS[number % len(LOOKS)]]:
        page.set_viewport_size({"width": look.width, "height": look.height})
        page.emulate_media(color_scheme="dark" if look.dark else "light", reduced_motion="reduce")
        page.evaluate("dark => document.documentElement.classList.toggle('dark', dark)", look.dark)
        found += [f"{look}: {finding}" for finding in findings(page, without=without)]
    return found


def kinds_of_every_page(orders: dict[str, Any], found: list[str]) -> dict[str, set[tuple[Any, ...]]]:
    """The kinds of elements of each page. An address that answers with no page is added to what is found."""
    client = Client()
    client.force_login(User.objects.get(username="olga"))
    pages = {}
    for address in console_pages.addresses(orders):
        answer = client.get(address, follow=True)
        if answer.status_code == 405 or (answer.status_code == 403 and address.endswith(("/add/", "/delete/"))):
            continue  # it takes a POST only, or people neither make nor delete such rows
        if answer.status_code not in (200, 409):
            found.append(f"{address}: {answer.status_code}")
            continue
        pages[address] = Kinds(answer.content.decode()).found
    return pages


@pytest.mark.nightly
def test_no_page_of_the_console_has_a_violation(chromium: Any, live_server: Any):
    person("olga", "operator")
    User.objects.update(is_superuser=True)
    with testing.quiet(), looking(chromium, WIDE, base_url=live_server.url) as context:
        orders = console_pages.fill()
        page = context.new_page()
        page.goto("/admin/login/")
        found = in_its_looks(page, 0)
        sign_in(page)
        pages = kinds_of_every_page(orders, found)
        chosen = list(pages) if sized(0, 1) else covering(pages)
        for number, address in enumerate(chosen):
            page.goto(address)
            found += in_its_looks(page, number)
        page.goto("about:blank")
    print(f"{len(pages)} pages, {len(chosen)} of them looked at")
    assert len(pages) > 150
    assert found == [], "\n".join(found)
