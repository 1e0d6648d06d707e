"""The storefront's pages over plain HTTP: catalogue, cart and accounts, and what every page carries."""

from __future__ import annotations

import re

import pytest
from django.contrib.staticfiles import finders
from django.test import Client

from orders.catalogue import ARTICLES
from orders.models import Product
from tests.shopping import PASSWORD, place

pytestmark = pytest.mark.usefixtures("no_hints")


def test_the_catalogue_shows_what_is_sold_and_nothing_else(client, mug) -> None:
    Product.objects.create(sku="OLD", name="Old thing", price="1.00", available=1, active=False)

    page = client.get("/").text

    assert "Blue mug" in page
    assert "12.90" in page
    assert "Old thing" not in page


def test_a_product_that_is_sold_out_cannot_be_added(client, mug) -> None:
    Product.objects.update(available=0)

    assert "Sold out" in client.get("/products/MUG-BLUE/").text
    page = client.post("/cart/MUG-BLUE/add/", follow=True).text

    assert "Blue mug is sold out." in page
    assert "Nothing in it yet" in page


def test_a_visitor_fills_changes_and_empties_the_cart_without_javascript(client, mug) -> None:
    page = client.post("/cart/MUG-BLUE/add/", {"quantity": 2}, follow=True).text
    assert "25.80" in page

    page = client.post("/cart/MUG-BLUE/change/", {"quantity": 3}, follow=True).text
    assert "38.70" in page

    page = client.post("/cart/MUG-BLUE/change/", {"quantity": 3, "remove": "1"}, follow=True).text
    assert "Nothing in it yet" in page


def test_htmx_gets_only_the_part_that_changed(client, mug) -> None:
    added = client.post("/cart/MUG-BLUE/add/", headers={"HX-Request": "true"}).text
    changed = client.post("/cart/MUG-BLUE/change/", {"quantity": "200"}, headers={"HX-Request": "true"}).text

    assert 'id="cart-count"' in added
    assert "<html" not in added + changed
    assert "There are only 100 of Blue mug left." in changed


@pytest.mark.parametrize("path", ["/products/NONE/", "/nothing/"])
def test_an_unknown_page_says_so_in_the_shops_own_words(client, db, path) -> None:
    answer = client.get(path)

    assert answer.status_code == 404
    assert "There is nothing here" in answer.text


@pytest.mark.parametrize(("typed", "status"), [({f"field-{n}": "1" for n in range(1001)}, 400), ({}, 403)])
def test_a_page_that_refuses_a_form_offers_no_form_that_leads_back_to_its_address(mug, typed, status) -> None:
    answer = Client(enforce_csrf_checks=status == 403).post("/cart/MUG-BLUE/add/", typed)

    assert (answer.status_code, "Harbour Goods" in answer.text) == (status, True)
    assert re.findall(r'<form[^>]*method="post"[^>]*>', answer.text) == []


def test_what_refuses_a_click_offers_no_language_and_what_refuses_a_look_does(client, mug, viewer) -> None:
    """A product that is sold no more while its page is still open, and a button of the console: their addresses take a form alone."""
    looked_at, clicked = client.get("/products/NONE/"), client.post("/cart/NONE/add/")
    refused = viewer.post("/admin/supervision/channel/1/test/")

    assert [answer.status_code for answer in (looked_at, clicked, refused)] == [404, 404, 403]
    assert ['name="language"' in answer.text for answer in (looked_at, clicked, refused)] == [True, False, False]


def test_a_products_texts_are_escaped(client, mug) -> None:
    Product.objects.update(name="<script>x</script>", description="<b>y</b>")

    page = client.get("/products/MUG-BLUE/").text + client.get("/").text

    assert "<script>x" not in page
    assert "<b>y" not in page


def test_every_demo_product_has_its_picture() -> None:
    assert [article.sku for article in ARTICLES if finders.find(article.picture) is None] == []


@pytest.mark.parametrize(
    "path",
    [
        "/accounts/login/",
        "/accounts/signup/",
        "/accounts/signup/sent/",
        "/accounts/password_reset/",
        "/accounts/password_reset/done/",
        "/accounts/reset/x/y/",
        "/accounts/reset/done/",
    ],
)
def test_every_account_page_is_drawn_in_the_shops_own_look(client, db, path) -> None:
    answer = client.get(path, follow=True)

    assert answer.status_code == 200
    assert "Harbour Goods" in answer.text


def test_an_account_changes_its_password_in_the_shops_look(client, ada) -> None:
    client.force_login(ada)
    new = {"old_password": PASSWORD, "new_password1": "another-horse-battery", "new_password2": "another-horse-battery"}

    form = client.get("/accounts/password_change/")
    done = client.post("/accounts/password_change/", new, follow=True)

    assert "Harbour Goods" in form.text
    assert "Harbour Goods" in done.text
    assert "Your password is changed" in done.text
    ada.refresh_from_db()
    assert ada.check_password("another-horse-battery")


def test_the_console_changes_passwords_in_its_own_look(admin_client) -> None:
    for path in ("/admin/password_change/", "/admin/password_change/done/"):
        answer = admin_client.get(path)
        assert answer.status_code == 200
        assert "Harbour Goods" not in answer.text
        assert "unfold/" in answer.text


@pytest.mark.parametrize("path", ["/", "/?q=mug", "/products/MUG-BLUE/", "/cart/", "/accounts/login/", "/nothing/", "/orders/unknown/"])
def test_every_page_allows_nothing_inline_and_nothing_foreign(client, mug, path) -> None:
    answer = client.get(path)

    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=|\sstyle=|<style", answer.text)
    assert not re.search(r'(?:src|href)="(?:https?:)?//', answer.text)


@pytest.mark.parametrize("language", ["en", "it", "pt-br"])
def test_every_language_draws_the_main_pages(client, mug, language) -> None:
    public_id = place()

    for path in ("/", "/cart/", f"/orders/{public_id}/", "/accounts/login/"):
        answer = client.get(path, headers={"Accept-Language": language})
        assert answer.status_code == 200
        assert f'<html lang="{language}">' in answer.text
