"""The page of an order that travels in two parcels, in a real browser: wide and narrow, light and dark."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import httpx2
import pytest

from chaos.look import TLS
from tests.browser.test_storefront_browser import PATIENCE, expect, fill_address, running_shop
from tests.support.shop import Shop, until

__all__ = ["running_shop"]

pytestmark = pytest.mark.browser
LOOKS = [
    (name, {"viewport": {"width": width, "height": 900}, "color_scheme": scheme})
    for width, name in ((1280, "wide"), (360, "narrow"))
    for scheme in ("light", "dark")
]


@pytest.mark.nightly
def test_an_order_of_two_warehouses_shows_where_each_parcel_is(chromium: Any, running_shop: Shop) -> None:
    context = chromium.new_context(base_url=running_shop.url)
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    for count, product in enumerate(("Blue stoneware mug", "Monstera in a clay pot"), 1):
        page.goto("/")
        page.get_by_role("link", name=product).click()
        page.get_by_role("button", name="Add to cart").click()
        expect(page.locator("#cart-count")).to_contain_text(str(count))
    page.goto("/checkout/")
    fill_address(page)
    page.get_by_label("Visa test card").check()
    page.get_by_role("button", name="Order and pay").click()
    expect(page).to_have_url(re.compile(r"/orders/[\w-]+/$"))
    path = page.url.removeprefix(running_shop.url)
    public_id = path.strip("/").rpartition("/")[2]
    expect(page.locator("[data-state=Processed]")).to_be_visible(timeout=PATIENCE)
    expect(page.locator(".parcel")).to_have_count(2)
    context.close()

    created = [entry for entry in running_shop.ledger("carrier", public_id) if entry["operation"] == "create"]
    assert len(created) == 2
    [(shipment,)] = running_shop.rows(
        "SELECT s.result->>'shipment' FROM supervision_stepstate s JOIN supervision_run r ON r.id = s.run_id WHERE r.key = %s",
        f"{public_id}:book-shipment[0]:child",
    )
    for state in ("picked_up", "delivered"):
        httpx2.post(f"{running_shop.simulators_url}/shipments/{shipment}/{state}", trust_env=False, verify=TLS).raise_for_status()
    until(lambda: running_shop.rows("SELECT true FROM orders_parcel WHERE state = 'delivered'"), what="the carrier's webhook")
    for name, options in LOOKS:
        context = chromium.new_context(base_url=running_shop.url, **options)
        page = context.new_page()
        page.goto(path)
        expect(page.locator(".parcel")).to_have_count(2)
        expect(page.get_by_text("Waiting for the carrier")).to_be_visible()
        expect(page.get_by_text("Delivered", exact=True)).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= options["viewport"]["width"]
        if folder := os.environ.get("SCREENSHOTS"):
            page.screenshot(path=str(Path(folder) / f"parcels-{name}-{options['color_scheme']}.png"), full_page=True)
        context.close()
