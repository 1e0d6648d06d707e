"""The storefront in a real browser with real workers: from the catalogue to an order that is on its way."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.shop import Shop, open_shop

sync_api = pytest.importorskip("playwright.sync_api", reason="needs the playwright package")

pytestmark = pytest.mark.browser
expect = sync_api.expect
PATIENCE = 30_000  # milliseconds
FIELDS = {
    "E-mail": "ada@example.com",
    "Full name": "Ada L.",
    "Street and number": "Via Roma 1",
    "Postal code": "10121",
    "City": "Torino",
}


@pytest.fixture(scope="module")
def running_shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """Every role as a real process, with simulated services."""
    with open_shop("pgmq://", tmp_path_factory.mktemp("shop"), SUPERVISION_SWEEP_SECONDS="1") as shop:
        yield shop


@pytest.fixture
def complaints() -> list[str]:
    """Messages on the browser's console: scripts and styles that it refused, errors in our scripts."""
    return []


@pytest.fixture
def page(chromium: Any, running_shop: Shop, complaints: list[str]) -> Iterator[Any]:
    """A page of a new visitor."""
    context = chromium.new_context(base_url=running_shop.url)
    context.set_default_timeout(PATIENCE)
    one = context.new_page()
    one.on("pageerror", lambda error: complaints.append(str(error)))
    one.on("console", lambda message: "Content Security Policy" in message.text and complaints.append(message.text))
    yield one
    context.close()
    running_shop.fault()


def fill_the_cart(page: Any) -> None:
    page.goto("/")
    page.get_by_role("link", name="Blue stoneware mug").click()
    page.get_by_label("Quantity").fill("2")
    page.get_by_role("button", name="Add to cart").click()
    expect(page.locator("#cart-count")).to_contain_text("2")


def fill_address(page: Any) -> None:
    for label, text in FIELDS.items():
        page.get_by_label(label, exact=True).fill(text)
    page.get_by_label("Country").select_option("IT")


def check_out(page: Any, card: str = "Visa test card") -> str:
    """From the cart to the order page; returns the order's public id."""
    page.goto("/cart/")
    page.get_by_role("link", name="Check out").click()
    fill_address(page)
    page.get_by_label(card).check()
    page.get_by_role("button", name="Order and pay €25.80").dblclick()
    expect(page).to_have_url(re.compile(r"/orders/[\w-]+/$"))  # the second click aborts the first one's navigation
    return page.url.rstrip("/").rpartition("/")[2]


def test_a_visitor_orders_two_mugs_and_watches_them_go(page: Any, running_shop: Shop, complaints: list[str]) -> None:
    [(before,)] = running_shop.rows("SELECT count(*) FROM supervision_submission")
    running_shop.fault(service="carrier", mode="slow", latency_ms=1500)
    fill_the_cart(page)

    public_id = check_out(page)

    expect(page.locator("[data-step=book-shipment].now")).to_be_visible()
    expect(page.locator("[data-state=Processed]")).to_be_visible()
    expect(page.get_by_text("Your order is on its way")).to_be_visible()
    expect(page.locator(".stages .done")).to_have_count(4)
    expect(page.get_by_text("Yes, cancel the order")).to_have_count(0)
    assert len([entry for entry in running_shop.ledger("payment", public_id) if entry["operation"] == "confirm"]) == 1
    assert running_shop.rows("SELECT count(*) FROM supervision_submission") == [(before + 1,)]
    assert complaints == []


def test_the_page_asks_by_itself_when_the_stream_is_cut(page: Any, running_shop: Shop, complaints: list[str]) -> None:
    page.route("**/stream/", lambda route: route.abort())
    fill_the_cart(page)

    check_out(page)

    expect(page.locator("[data-state=Processed]")).to_be_visible()
    assert complaints == []


def test_a_customer_confirms_the_payment_at_the_bank(page: Any, running_shop: Shop, complaints: list[str]) -> None:
    fill_the_cart(page)
    public_id = check_out(page, "A card with a second factor")

    page.get_by_role("link", name="Confirm the payment at your bank").click()
    expect(page.get_by_text("25.80 EUR")).to_be_visible()
    page.get_by_role("button", name="Confirm the payment").click()

    expect(page).to_have_url(re.compile(rf"/orders/{public_id}/$"))  # the bank sends the customer back
    expect(page.get_by_text("Your order is on its way")).to_be_visible()
    assert running_shop.rows("SELECT count(*) FROM orders_paymentevent WHERE outcome = 'signal accepted'") == [(1,)]
    assert complaints == []


def test_a_customer_cancels_while_the_parcel_is_not_booked(page: Any, running_shop: Shop) -> None:
    running_shop.fault(service="carrier", mode="error_before")
    fill_the_cart(page)
    public_id = check_out(page)
    expect(page.locator("[data-step=charge-payment].done")).to_be_visible()

    page.get_by_text("Cancel this order").click()
    page.get_by_label("Why do you cancel?").fill("Found one at home")
    page.get_by_role("button", name="Yes, cancel the order").click()
    running_shop.fault()

    expect(page.get_by_role("heading", name="Your order is cancelled")).to_be_visible()
    expect(page.get_by_text("goes back to your card")).to_be_visible()
    running_shop.ends(public_id, "Cancelled")
