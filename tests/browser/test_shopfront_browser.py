"""The shop as different customers use it: without JavaScript, without a mouse, with a screen reader, on a slow line."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest

from chaos.look import TLS
from tests.browser.test_storefront_browser import FIELDS, PATIENCE, expect, fill_address
from tests.support.axe import WIDE, Look, findings, looking
from tests.support.shop import Shop, open_shop, until

pytestmark = [pytest.mark.browser, pytest.mark.timeout(1200)]
SMALL = Look("small-dark-phone", 360, 740, dark=True)
PASSWORD = "correct-horse-battery"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """Every role as a real process, and 10,000 products."""
    with open_shop("pgmq://", tmp_path_factory.mktemp("shop"), SUPERVISION_SWEEP_SECONDS="1") as running:
        running.manage("seed_catalogue", "--count", "10000")
        yield running


@pytest.fixture
def visit(chromium: Any, shop: Shop) -> Iterator[Callable[..., Any]]:
    """A page of a new visitor, with the browser context's options."""
    contexts = []

    def opened(**options: Any) -> Any:
        context = chromium.new_context(base_url=shop.url, **options)
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        return context.new_page()

    yield opened
    for context in contexts:
        context.close()


def public_id(page: Any) -> str:
    expect(page).to_have_url(re.compile(r"/orders/[\w-]{20,}/$"))
    return str(page.url.rstrip("/").rpartition("/")[2])


def put_into_the_cart(page: Any) -> None:
    page.goto("/products/MUG-BLUE/")
    page.get_by_role("button", name="Add to cart").click()
    expect(page.locator("#cart-count")).not_to_be_empty()


def check_out(page: Any, card: str = "Visa test card") -> str:
    page.goto("/checkout/")
    fill_address(page)
    page.get_by_label(card).check()
    page.get_by_role("button", name="Order and pay").click()
    return public_id(page)


def delivered(shop: Shop, order: str) -> None:
    """Let the carrier deliver the order's parcel."""
    [(shipment,)] = shop.rows(
        "SELECT s.result->>'shipment' FROM supervision_stepstate s JOIN supervision_run r ON r.id = s.run_id"
        " WHERE r.key = %s AND s.name = 'book-shipment'",
        order,
    )
    for state in ("picked_up", "delivered"):
        httpx2.post(f"{shop.simulators_url}/shipments/{shipment}/{state}", trust_env=False, verify=TLS).raise_for_status()
    until(
        lambda: shop.rows("SELECT true FROM orders_parcel WHERE state = 'delivered' AND order_key = %s", order),
        what="the carrier's webhook",
    )


def signed_up(page: Any, shop: Shop, address: str) -> None:
    """Open an account by the link in the mail."""
    page.goto("/accounts/signup/")
    page.get_by_label("E-mail").fill(address)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Open an account").click()
    expect(page.get_by_role("heading", name="Look into your mail")).to_be_visible()
    page.goto(until(lambda: link_in_the_mail(shop, address), what="the mail"))
    page.get_by_role("button", name="Open your account").click()
    expect(page.get_by_text("Your account is ready")).to_be_visible()


def link_in_the_mail(shop: Shop, address: str) -> str:
    mails = [
        one for one in httpx2.get(f"{shop.simulators_url}/ledger/mail", trust_env=False, verify=TLS).text.splitlines() if address in one
    ]
    found = [re.search(r"/accounts/signup/[^\"]+", one) for one in mails]
    return next((one.group(0) for one in found if one), "")


@pytest.mark.nightly
def test_the_first_load_of_10_000_products_is_under_100_kb(visit: Callable[..., Any]) -> None:
    page = visit()
    devtools = page.context.new_cdp_session(page)
    devtools.send("Network.enable")
    loaded: list[float] = []
    devtools.on("Network.loadingFinished", lambda event: loaded.append(event["encodedDataLength"]))

    page.goto("/", wait_until="networkidle")

    assert page.locator("li.product").count() == 24
    assert len(loaded) > 5  # the page, its style, its script, pictures
    assert 10_000 < sum(loaded) < 100_000, sum(loaded)
    assert page.evaluate("document.fonts.size") == 0  # the visitor's own fonts
    assert page.evaluate("performance.getEntriesByType('resource').every(one => one.name.startsWith(location.origin))")


@pytest.mark.nightly
def test_everything_works_without_javascript(visit: Callable[..., Any], shop: Shop) -> None:
    page = visit(java_script_enabled=False)
    address = "nora@example.com"
    page.goto("/")
    page.get_by_label("Search for products").fill("stoneware mug")
    page.get_by_role("button", name="Search").click()
    page.get_by_role("link", name="Kitchen").click()
    page.get_by_label("Sort").select_option("price")
    page.get_by_role("button", name="Show").click()
    page.get_by_role("link", name="More").click()
    page.get_by_role("link", name="Back").click()
    page.locator("li.product").first.get_by_role("button").click()
    page.get_by_role("spinbutton").fill("2")
    page.get_by_role("button", name="Change", exact=True).first.click()
    expect(page.locator("#cart-count")).to_contain_text("2")

    signed_up(page, shop, address)
    page.goto("/accounts/addresses/new/")
    for label, text in FIELDS.items():
        if label != "E-mail":
            page.get_by_label(label, exact=True).fill(text)
    page.get_by_label("Country").select_option("IT")
    page.get_by_role("button", name="Save the address").click()
    expect(page.get_by_text("The address is saved")).to_be_visible()

    page.goto("/checkout/")
    expect(page.get_by_label("E-mail")).to_have_value(address)
    expect(page.get_by_label("Street and number")).to_be_hidden()  # a saved address is chosen
    page.get_by_label("A card that is declined").check()
    page.get_by_role("button", name="Order and pay").click()
    order = public_id(page)

    shop.ends(order, "Error")
    page.reload()
    page.get_by_role("link", name="Pay in another way").click()
    page.get_by_label("Visa test card").check()
    page.get_by_role("button", name=re.compile("^Pay ")).click()
    shop.ends(order, "Processed")
    delivered(shop, order)
    page.reload()
    page.get_by_text("Return goods").click()
    page.get_by_label(re.compile("mug")).fill("1")
    page.get_by_label("Why do you return it?").fill("too blue")
    page.get_by_role("button", name="Return these goods").click()
    expect(page.get_by_text("Your return is noted")).to_be_visible()

    page.goto("/orders/")
    page.get_by_role("button", name="Order again").click()
    expect(page.get_by_text("What you ordered then is in your cart")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    page.goto("/accounts/login/")
    page.get_by_label("E-mail or username").fill(address.upper())
    page.get_by_label("Password").fill(PASSWORD)
    page.locator("main").get_by_role("button", name="Sign in").click()
    page.goto("/accounts/")
    expect(page.get_by_text("confirmed", exact=True)).to_be_visible()


def walk_to(page: Any, locator: Any) -> None:
    """Press the tabulator until this element has the focus, and see where it is."""
    for _ in range(120):
        page.keyboard.press("Tab")
        if locator.evaluate("one => one === document.activeElement"):
            assert locator.evaluate("one => one.matches(':focus-visible') && getComputedStyle(one).outlineStyle !== 'none'")
            return
    raise AssertionError(f"the tabulator does not lead to {locator}")


def test_everything_works_without_a_mouse(visit: Callable[..., Any], shop: Shop) -> None:
    page = visit()
    keys = page.keyboard
    page.goto("/")
    walk_to(page, page.get_by_label("Search for products"))
    keys.type("blue stoneware mug")
    keys.press("Enter")
    walk_to(page, page.get_by_role("link", name="Blue stoneware mug", exact=True))
    keys.press("Enter")
    expect(page.get_by_role("heading", name="Blue stoneware mug")).to_be_visible()
    walk_to(page, page.get_by_role("button", name="Add to cart"))
    keys.press("Enter")
    expect(page.locator("#cart-count")).to_contain_text("1")
    page.goto("/cart/")
    walk_to(page, page.get_by_role("link", name="Check out"))
    keys.press("Enter")
    for label, text in FIELDS.items():
        walk_to(page, page.get_by_label(label, exact=True))
        keys.type(text)
    walk_to(page, page.get_by_label("Country"))
    keys.type("Italy")
    walk_to(page, page.get_by_label("Visa test card"))
    for _ in range(3):
        keys.press("ArrowDown")
    expect(page.get_by_label("A card that is declined")).to_be_checked()
    walk_to(page, page.get_by_role("button", name="Order and pay"))
    keys.press("Enter")
    order = public_id(page)

    expect(page.get_by_role("heading", name="Your payment was refused")).to_be_visible()
    expect(page.locator("[data-step=charge-payment].trouble")).to_be_visible()
    walk_to(page, page.get_by_role("link", name="Pay in another way"))
    keys.press("Enter")
    page.wait_for_url("**/orders/**pay=1**")
    walk_to(page, page.get_by_label("Visa test card"))
    keys.press("Space")
    walk_to(page, page.get_by_role("button", name=re.compile("^Pay ")))
    keys.press("Enter")
    shop.ends(order, "Processed")
    expect(page.get_by_text("Your order is on its way")).to_be_visible()
    expect(page.get_by_role("button", name=re.compile("^Pay "))).to_have_count(0)
    assert len([entry for entry in shop.ledger("payment", order) if entry["operation"] == "confirm" and entry["effect"]]) == 1
    delivered(shop, order)
    page.goto(f"/orders/{order}/")
    walk_to(page, page.locator("#order-returns summary"))
    keys.press("Enter")
    walk_to(page, page.get_by_label("Blue stoneware mug"))
    keys.type("1")
    walk_to(page, page.get_by_label("Why do you return it?"))
    keys.type("too blue")
    walk_to(page, page.get_by_role("button", name="Return these goods"))
    keys.press("Enter")
    expect(page.get_by_text("Your return is noted")).to_be_visible()


@pytest.fixture(scope="module")
def orders(chromium: Any, shop: Shop) -> dict[str, str]:
    """One guest's order of each kind that its page shows differently."""
    context = chromium.new_context(base_url=shop.url)
    context.set_default_timeout(PATIENCE)
    page, made = context.new_page(), {}
    for kind, card in {
        "refused": "A card that is declined",
        "at the bank": "A card with a second factor",
        "by transfer": "Bank transfer",
        "on its way": "Visa test card",
        "delivered": "Visa test card",
    }.items():
        put_into_the_cart(page)
        made[kind] = check_out(page, card)
    shop.ends(made["refused"], "Error")
    shop.ends(made["on its way"], "Processed")
    shop.ends(made["delivered"], "Processed")
    delivered(shop, made["delivered"])
    expect(page.get_by_role("heading")).not_to_have_count(0)
    context.close()
    return made


@pytest.mark.parametrize("look", [pytest.param(WIDE, marks=pytest.mark.nightly), SMALL], ids=str)
def test_no_page_of_the_shop_has_a_finding(chromium: Any, shop: Shop, orders: dict[str, str], look: Look) -> None:
    found: list[str] = []
    with looking(chromium, look, base_url=shop.url) as context:
        context.set_default_timeout(PATIENCE)
        page = context.new_page()

        def check(path: str = "") -> None:
            if path:
                page.goto(path)
            assert page.evaluate("document.documentElement.scrollWidth") <= look.width, path or page.url
            found.extend(findings(page))

        for path in ("/", "/?q=oak+mug", "/?q=zzz", "/categories/kitchen/?sort=price", "/products/PLANT-MONSTERA/", "/cart/"):
            check(path)
        for path in (
            "login/",
            "signup/",
            "signup/sent/",
            "signup/x/",
            "password_reset/",
            "password_reset/done/",
            "reset/x/y/",
            "reset/done/",
        ):
            check(f"/accounts/{path}")
        page.goto("/accounts/signup/")
        page.get_by_label("E-mail").fill("mia@example.com")
        page.get_by_label("Password").fill("12345678")
        page.get_by_role("button", name="Open an account").click()
        expect(page.locator("[aria-invalid]")).to_have_count(1)
        check()
        for order in orders.values():
            check(f"/orders/{order}/")
        check(f"/orders/{orders['refused']}/?pay=1")
        page.goto(f"/orders/{orders['delivered']}/")
        page.get_by_text("Return goods").click()
        check()
        check("/orders/unknown/")

        put_into_the_cart(page)
        check()
        for path in ("/cart/", "/checkout/"):
            check(path)
        page.get_by_role("button", name="Order and pay").click()
        expect(page.locator("[aria-invalid]")).not_to_have_count(0)
        check()

        signed_up(page, shop, f"axe-{secrets.token_hex(4)}@example.com")
        for path in ("", "addresses/", "addresses/new/", "tokens/", "password_change/", "password_change/done/", "email/x/"):
            check(f"/accounts/{path}")
        check("/orders/")
        page.goto("/checkout/")
        fill_address(page)
        page.get_by_label("Save this address").check()
        page.get_by_role("button", name="Order and pay").click()
        shop.ends(public_id(page), "Processed")
        check()
        for path in ("/orders/", "/orders/?number=1", "/accounts/", "/accounts/addresses/"):
            check(path)
        put_into_the_cart(page)
        check("/checkout/")
    assert found == []
