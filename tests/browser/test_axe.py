"""The accessibility check itself: it finds what is wrong in each look, and nothing on a page that is right."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.support.axe import DARK_PHONE, LOOKS, WIDE, Look, findings, looking
from tests.support.serving import Handler, serving

pytestmark = pytest.mark.browser

PAGE = """<!doctype html><html lang="en"><head><title>Orders</title><meta http-equiv="Content-Security-Policy" content="script-src 'none'">
<style>body {{ background: #fff; color: #222 }} @media (prefers-color-scheme: dark) {{ body {{ background: #111; color: {dark} }} }}</style>
</head><body><main><h1>Orders</h1><label>Name <input></label><p>All is well.</p>{more}</main></body></html>"""


def found(chromium: Any, look: Look, *, dark: str = "#ddd", more: str = "", without: tuple[str, ...] = ()) -> list[str]:
    with looking(chromium, look) as context:
        page = context.new_page()
        page.set_content(PAGE.format(dark=dark, more=more))
        assert findings(page, without=without) == findings(page, without=without)  # it may run twice in one page
        return findings(page, without=without)


@pytest.mark.parametrize("look", LOOKS, ids=str)
def test_a_page_that_is_right_has_no_finding(chromium: Any, look: Look):
    assert found(chromium, look) == []


def test_a_field_without_a_name_is_found_in_spite_of_the_content_policy(chromium: Any):
    (line,) = found(chromium, WIDE, more='<input id="nameless">')

    assert "label (critical): #nameless" in line
    assert found(chromium, WIDE, more='<input id="nameless">', without=("#nameless",)) == []


def test_a_colour_that_is_too_dark_for_the_dark_theme_is_found_there_alone(chromium: Any):
    assert found(chromium, WIDE, dark="#333") == []
    assert {line.split()[1] for line in found(chromium, DARK_PHONE, dark="#333")} == {"color-contrast"}


PLAIN = '<!doctype html><html lang="en"><head><title>Orders</title>{style}</head><body><main><h1>Orders</h1>{link}</main></body></html>'
SERVED = {
    "/first": ("text/html", PLAIN.format(style="", link='<a href="/next">Next</a>')),
    "/next": (
        "text/html",
        PLAIN.format(
            style='<meta name="color-scheme" content="light dark"><link rel="stylesheet" href="/late.css">',
            link='<a id="last" href="/first">First</a>',
        ),
    ),
    "/late.css": ("text/css", "body { background: #111; color: #ddd } a { color: #ddd }"),
}


class Server(Handler):
    """The three files above; the style sheet a second late."""

    def get(self) -> None:
        kind, text = SERVED.get(self.path, ("text/plain", ""))
        if self.path == "/late.css":
            time.sleep(1)
        self.answer(200, text.encode(), kind)


def test_a_page_is_looked_at_with_its_styles(chromium: Any):
    """An answer to a click can be read before its style sheet is there; a link then has the browser's own colours."""
    with serving(Server) as url, looking(chromium, DARK_PHONE, base_url=url) as context:
        page = context.new_page()
        page.goto("/first")
        page.get_by_role("link").click()
        page.locator("#last").wait_for(state="attached")

        assert findings(page) == []
