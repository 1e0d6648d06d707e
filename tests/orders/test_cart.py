"""The session cart: valid quantities from any content of the session, and current prices."""

from __future__ import annotations

from decimal import Decimal
from io import StringIO

import pytest
from django.contrib.sessions.backends.cache import SessionStore
from django.core.management import call_command

from orders.cart import Cart, changes
from orders.catalogue import ARTICLES
from orders.models import Product
from orders.validation import MAX_LINES, MAX_QUANTITY


@pytest.fixture
def mug(db: None) -> Product:
    return Product.objects.create(sku="MUG-BLUE", name="Blue mug", price="12.90", available=5)


@pytest.fixture
def pot(db: None) -> Product:
    return Product.objects.create(sku="TEAPOT-SAND", name="Sand teapot", price="38.00", available=2000)


@pytest.fixture
def session() -> SessionStore:
    return SessionStore()


def test_a_cart_adds_up_what_was_put_in_in_that_order(session, mug, pot) -> None:
    cart = Cart(session)

    cart.add(pot)
    cart.add(mug, 2)
    cart.add(pot)

    contents = Cart(session).contents()
    assert [(line.product.sku, line.quantity) for line in contents.lines] == [("TEAPOT-SAND", 2), ("MUG-BLUE", 2)]
    assert contents.total == Decimal("101.80")
    assert Cart(session).pieces == 4


def test_a_cart_takes_no_more_than_there_is_when_more_is_added(session, mug) -> None:
    cart = Cart(session)

    assert cart.add(mug, 4) == 4
    assert cart.add(mug, 4) == 1

    assert cart.quantity("MUG-BLUE") == 5


def test_a_cart_takes_no_more_than_an_order_may_hold(session, pot) -> None:
    cart = Cart(session)

    cart.change(pot, MAX_QUANTITY + 1)

    assert cart.quantity("TEAPOT-SAND") == MAX_QUANTITY


def test_a_full_cart_refuses_another_product_but_changes_those_it_has(session, mug, pot) -> None:
    session["cart"] = {"MUG-BLUE": 1} | {f"SKU-{n}": 1 for n in range(MAX_LINES - 1)}
    cart = Cart(session)

    assert cart.add(pot) == 0
    assert cart.add(mug) == 1


@pytest.mark.parametrize("quantity", [0, -3])
def test_a_cart_forgets_a_product_when_none_of_it_is_wanted(session, mug, pot, quantity) -> None:
    cart = Cart(session)
    cart.add(mug)
    cart.add(pot)

    cart.change(mug, quantity)

    assert [line.product for line in Cart(session).contents().lines] == [pot]


def test_a_cart_follows_the_catalogue_when_price_and_stock_change(session, mug) -> None:
    Cart(session).add(mug, 3)

    Product.objects.update(price="13.50", available=2)

    [line] = Cart(session).contents().lines
    assert (line.amount, line.short) == (Decimal("40.50"), True)


def test_a_cart_names_what_is_gone_when_a_product_is_no_longer_sold(session, mug, pot) -> None:
    cart = Cart(session)
    cart.add(mug)
    cart.add(pot)

    Product.objects.filter(pk=mug.pk).update(active=False)

    contents = Cart(session).contents()
    assert contents.gone == ["MUG-BLUE"]
    assert [line.product for line in contents.lines] == [pot]


@pytest.mark.parametrize("kept", [None, "nonsense", ["MUG-BLUE"], {"MUG-BLUE": "2"}, {"MUG-BLUE": -1}, {"MUG-BLUE": True}])
def test_a_cart_is_empty_when_the_session_holds_nonsense(session, mug, kept) -> None:
    session["cart"] = kept

    assert Cart(session).contents().lines == []


def test_changes_name_the_old_price_of_what_the_customer_saw(session, mug, pot) -> None:
    cart = Cart(session)
    cart.add(mug)
    cart.add(pot)
    seen = cart.contents().seen

    Product.objects.filter(pk=mug.pk).update(price="13.50")

    [(line, before)] = changes(seen, Cart(session).contents())
    assert (line.product, before) == (mug, Decimal("12.90"))


@pytest.mark.parametrize("seen", ["", "MUG-BLUE", "MUG-BLUE:1:", "MUG-BLUE:1:NaN", "MUG-BLUE:1:1e9", "::::", "MUG-BLUE:1:٣", "\x00"])
def test_changes_ignore_what_cannot_be_read_when_the_form_was_tampered_with(session, mug, seen) -> None:
    Cart(session).add(mug)

    assert changes(seen, Cart(session).contents()) == []


def test_the_catalogue_seeder_keeps_edited_stock_and_prices_when_it_runs_again(db) -> None:
    call_command("seed_catalogue", stdout=StringIO())
    Product.objects.filter(sku="MUG-BLUE").update(available=7, price="14.00")
    Product.objects.filter(sku="CLOCK-WALL").delete()

    out = StringIO()
    call_command("seed_catalogue", stdout=out)

    mug = Product.objects.get(sku="MUG-BLUE")
    assert (mug.available, mug.price) == (7, Decimal("14.00"))
    assert Product.objects.count() == len(ARTICLES) == 12
    assert "1 of them new" in out.getvalue()


def test_a_cart_of_two_currencies_shows_no_sum_and_leads_to_no_checkout(client, mug, pot) -> None:
    Product.objects.filter(pk=pot.pk).update(currency="USD")
    client.post("/cart/MUG-BLUE/add/", {"quantity": "1"})
    client.post("/cart/TEAPOT-SAND/add/", {"quantity": "1"})

    page = client.get("/cart/").text

    assert "One order cannot mix EUR and USD. To check out, remove the products of one currency." in page
    assert ("€50.90" in page, "/checkout/" in page) == (False, False)
    assert client.get("/checkout/").headers["Location"] == "/cart/"
    client.post("/cart/TEAPOT-SAND/change/", {"remove": "1"})
    assert "€12.90" in client.get("/cart/").text
    assert client.get("/checkout/").status_code == 200
