"""A browser for the tests of one file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connections


@pytest.fixture(scope="module")
def chromium(chromium_path: str) -> Iterator[Any]:
    """Chromium, driven by Playwright."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs the playwright package")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path, args=["--no-sandbox"])
        yield browser
        browser.close()
        connections.close_all()  # Django keeps others while the browser's event loop runs: a later test may cut them
