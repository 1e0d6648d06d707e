"""Accessibility of the console: axe-core finds nothing on any of its pages, wide, and dark on a phone.

The suite looks at a page in one of both, and only if it has a kind of element that no page before had. A soak looks at all.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from django.contrib.auth.models import User

from supervision import testing
from tests.support import console_pages
from tests.support.axe import LOOKS, WIDE, findings, looking
from tests.support.console import person
from tests.support.soak import sized

pytest.importorskip("playwright.sync_api", reason="needs the playwright package")
pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True), pytest.mark.timeout(1500)]


NAMES = re.compile(r"\b(?:app|model|field|column)-[\w-]+")  # classes that say which table and column it is, for scripts


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


SEEN: set[tuple[Any, ...]] = set()  # the kinds of elements that were looked at


def sign_in(page: Any) -> None:
    page.goto("/admin/login/?next=/admin/")
    page.fill("[name=username]", "olga")
    page.fill("[name=password]", "a password for tests")
    page.click("[type=submit]")
    page.wait_for_url("**/admin/")


def in_its_looks(page: Any, number: int) -> list[str]:
    """What is found on this page, without loading it again: in one look in the suite, in another on the next page; in all in a soak."""
    found = []
    for look in LOOKS[: sized(0, len(LOOKS))] or [LOOKS[number % len(LOOKS)]]:
        page.set_viewport_size({"width": look.width, "height": look.height})
        page.emulate_media(color_scheme="dark" if look.dark else "light", reduced_motion="reduce")
        page.evaluate("dark => document.documentElement.classList.toggle('dark', dark)", look.dark)
        found += [f"{look}: {finding}" for finding in findings(page)]
    return found


@pytest.mark.parametrize("part", ["supervision", "orders", "the rest"])
def test_no_page_of_the_console_has_a_violation(chromium: Any, live_server: Any, part: str):
    person("olga", "operator")
    User.objects.update(is_superuser=True)
    with testing.quiet(), looking(chromium, WIDE, base_url=live_server.url) as context:
        orders = console_pages.fill()
        page = context.new_page()
        page.goto("/admin/login/")
        found = in_its_looks(page, 0)
        sign_in(page)
        reached, visited = 0, 0
        for address in console_pages.addresses(orders):
            if address.startswith((f"/admin/{part}/",)) or (
                part == "the rest" and not address.startswith(("/admin/supervision/", "/admin/orders/"))
            ):
                answer = context.request.get(address)
                if answer.status == 405 or (answer.status == 403 and address.endswith(("/add/", "/delete/"))):
                    continue  # it takes a POST only, or people neither make nor delete such rows
                if answer.status not in (200, 409):
                    found.append(f"{address}: {answer.status}")
                    continue
                reached += 1
                kinds = Kinds(answer.text()).found
                if kinds <= SEEN and not sized(0, 1):
                    continue
                SEEN.update(kinds)
                page.goto(address)
                found += in_its_looks(page, visited)
                visited += 1
        page.goto("about:blank")
    print(f"{part}: {reached} pages, {visited} of them looked at")
    assert reached > 20
    assert found == [], "\n".join(found)
