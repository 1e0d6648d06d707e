"""axe-core in Chromium: what people who use a screen reader, a keyboard or a zoomed page would stumble on.

`LOOKS` are the looks that every page is checked in; `looking(browser, look)` opens a context with one;
`findings(page)` are the violations of the page as it is now: one line each, none if it is accessible.
The library is not part of the product: it is run in the page by the tests alone, past the page's content policy.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SOURCE = (Path(__file__).parent / "vendor" / "axe-4.14.1.min.js").read_text()


@dataclass(frozen=True)
class Look:
    """How a page is looked at: the size of the window in CSS pixels, and the theme."""

    name: str
    width: int
    height: int
    dark: bool = False

    def __str__(self) -> str:
        return self.name


WIDE, DARK_PHONE = Look("wide", 1440, 900), Look("dark-phone", 390, 844, dark=True)
LOOKS = (WIDE, DARK_PHONE)  # contrast depends on the theme, and layout on the width: two looks have both of each


@contextmanager
def looking(browser: Any, look: Look, **options: Any) -> Iterator[Any]:
    """A browser context with this look. Nothing moves in it, because a colour that fades in has the wrong contrast."""
    context = browser.new_context(
        viewport={"width": look.width, "height": look.height},
        color_scheme="dark" if look.dark else "light",
        reduced_motion="reduce",
        **options,
    )
    try:
        yield context
    finally:
        context.close()


def findings(page: Any, *, without: tuple[str, ...] = ()) -> list[str]:
    """The violations on this page, all rules on: the rule, how bad it is, the element, and what is wrong with it.

    without: selectors of what the project does not write, such as a frame of another site.
    It waits for the page's styles first: a form that was sent shows its answer before they are there."""
    page.wait_for_load_state()
    if page.evaluate("typeof axe === 'undefined'"):  # not again in the next look: it is half a megabyte
        page.evaluate(f"(() => {{{SOURCE}}})()")
    answer = page.evaluate(
        "without => axe.run(without.length ? {exclude: without} : document, {resultTypes: ['violations']})"
        ".then(found => found.violations.map(one => ({id: one.id, impact: one.impact, nodes: one.nodes.map("
        "node => ({target: node.target.join(' '), why: node.failureSummary}))})))",
        list(without),
    )
    return [
        f"{page.url} {rule['id']} ({rule['impact']}): {node['target']}: {' '.join((node['why'] or '').split())}"
        for rule in answer
        for node in rule["nodes"]
    ]
