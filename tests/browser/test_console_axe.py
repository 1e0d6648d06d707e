"""Accessibility of the console: axe-core finds nothing on any of its pages, wide, and dark on a phone; in the suite in one of both."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import User

from supervision import testing
from tests.support import console_pages
from tests.support.axe import LOOKS, WIDE, findings, looking
from tests.support.console import person
from tests.support.soak import sized

sync_api = pytest.importorskip("playwright.sync_api", reason="needs the playwright package")
pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True), pytest.mark.timeout(1500)]


# Django's own pages, which show no table's columns: one of each is enough.
ALIKE = re.compile(r"/(history|delete)/$")


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
        visited, alike = 0, set[str]()
        for address in console_pages.addresses(orders):
            if address.startswith((f"/admin/{part}/",)) or (
                part == "the rest" and not address.startswith(("/admin/supervision/", "/admin/orders/"))
            ):
                kind = ALIKE.search(address)
                if kind and kind[1] in alike:
                    continue
                try:
                    answer = page.goto(address)
                except sync_api.Error as error:
                    if context.request.get(address).status != 405:  # a 405 has no page: it takes a POST only
                        raise AssertionError(address) from error
                    page.close()  # it still goes to its own page of errors, which can interrupt the next address
                    page = context.new_page()
                    continue
                if answer.status == 403 and address.endswith(("/add/", "/delete/")):
                    continue  # rows that people do not make or delete
                found += in_its_looks(page, visited) if answer.status in (200, 409) else [f"{address}: {answer.status}"]
                visited += 1
                if kind:
                    alike.add(kind[1])
        page.goto("about:blank")
    assert visited > 20
    assert found == [], "\n".join(found)
