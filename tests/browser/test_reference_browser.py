"""The API's reference in Chromium: no accessibility violation in any look, and few bytes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.axe import DARK_PHONE, WIDE, Look, findings, looking

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("look", [pytest.param(WIDE, marks=pytest.mark.nightly), DARK_PHONE], ids=str)
def test_the_reference_has_no_accessibility_violation_and_fits_the_window(chromium: Any, live_server: Any, look: Look):
    with looking(chromium, look) as context:
        page, sizes, complaints = context.new_page(), [], []
        page.on("response", lambda answer: sizes.append(len(answer.body())))
        page.on("console", lambda message: complaints.append(message.text))
        page.goto(f"{live_server.url}/api/docs/")

        assert findings(page) == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert complaints == []
        assert sum(sizes) < 500_000  # without compression
