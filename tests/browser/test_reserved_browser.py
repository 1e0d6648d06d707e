"""An order in a real browser that is charged once its goods are booked: what its customer reads while the amount is reserved."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from chaos.look import TLS
from tests.browser.test_storefront_browser import check_out, complaints, expect, fill_the_cart, page
from tests.support.shop import Shop, open_shop

__all__ = ["complaints", "page"]

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def running_shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """Every role as a real process, with simulated services; new orders are charged after their booking."""
    with open_shop("pgmq://", tmp_path_factory.mktemp("shop"), SUPERVISION_SWEEP_SECONDS="1", SHOP_CAPTURE="after-booking") as shop:
        yield shop


@pytest.mark.nightly
def test_a_reserved_amount_lapses_and_the_customer_pays_again(page: Any, running_shop: Shop, complaints: list[str]) -> None:
    running_shop.fault(service="carrier", mode="error_before")
    fill_the_cart(page)
    public_id = check_out(page)

    expect(page.locator("[data-step=authorise-payment].done")).to_contain_text("The amount is reserved on your card")
    expect(page.get_by_text("are reserved on your card. We charge them once your delivery is booked.")).to_be_visible()
    [[intent]] = running_shop.rows("SELECT result->>'intent' FROM supervision_stepstate WHERE name = 'authorise-payment'")
    httpx2.post(f"{running_shop.simulators_url}/payments/{intent}/expire", verify=TLS).raise_for_status()
    running_shop.fault()

    expect(page.get_by_role("heading", name="Your payment was refused")).to_be_visible()
    expect(page.get_by_text("The amount that was reserved on your card can not be charged any more.")).to_be_visible()
    expect(page.locator("[data-step=authorise-payment].done")).to_contain_text("The amount was reserved on your card")
    expect(page.locator("[data-step=capture-payment].trouble")).to_be_visible()
    page.get_by_role("link", name="Pay in another way").click()
    page.get_by_label("Visa test card").check()
    page.get_by_role("button", name="Pay €25.80").click()

    expect(page.get_by_text("Your order is on its way")).to_be_visible()
    expect(page.locator("[data-step=capture-payment].done")).to_be_visible()
    assert len([entry for entry in running_shop.ledger("payment", public_id) if entry["amount"] and entry["effect"]]) == 1
    assert complaints == []
