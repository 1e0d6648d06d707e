"""Products in the console: operators correct the stock while customers buy."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from orders.models import Product
from tests.support.console import hidden, mug

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("no_hints")]


def product_form(client: Client, product: Product) -> dict[str, str]:
    html = client.get(reverse("admin:orders_product_change", args=[product.pk])).content.decode()
    return {**hidden(html), "description": "", "active": "on"}


def test_the_stock_is_edited_in_the_form_and_in_the_list(operator: Client):
    product = mug(available=10)

    operator.post(reverse("admin:orders_product_change", args=[product.pk]), {**product_form(operator, product), "available": "12"})
    product.refresh_from_db()
    assert product.available == 12

    shown = hidden(operator.get("/admin/orders/product/").content.decode())
    operator.post("/admin/orders/product/", {**shown, "form-0-available": "15", "form-0-active": "on", "_save": "Save"})
    product.refresh_from_db()
    assert product.available == 15


def test_every_field_in_the_list_has_a_name_for_screen_readers(operator: Client):
    product = mug(available=10)

    html = operator.get("/admin/orders/product/").content.decode()

    fields = re.findall(r"<input[^>]*name=\"form-0-(available|active)\"[^>]*>", html)
    assert sorted(fields) == ["active", "available"]
    for tag in re.findall(r"<input[^>]*name=\"form-0-(?:available|active)\"[^>]*>", html):
        assert f'aria-label="{product.name}: ' in tag, tag


@pytest.mark.parametrize(
    ("meanwhile", "typed", "price", "available"),
    [
        # sold
        ({"available": 7}, {}, "12.90", 7),
        # by another operator
        ({"price": "15.00", "active": False}, {"form-0-available": "12", "form-0-active": "on"}, "15.00", 12),
    ],
)
def test_what_was_saved_while_the_form_was_open_stays(operator: Client, meanwhile, typed, price, available):
    product = mug(available=10)
    form = {**product_form(operator, product), "name": "Bigger blue mug"}
    shown = hidden(operator.get("/admin/orders/product/").content.decode())
    Product.objects.update(**meanwhile)

    operator.post(reverse("admin:orders_product_change", args=[product.pk]), form)
    operator.post("/admin/orders/product/", {**shown, **typed, "_save": "Save"})

    product.refresh_from_db()
    assert (product.name, str(product.price), product.active, product.available) == ("Bigger blue mug", price, False, available)


def test_stock_is_never_negative_and_a_product_is_never_deleted(client: Client, admin_user: Any):
    product = mug(available=10)
    client.force_login(admin_user)

    client.post(reverse("admin:orders_product_change", args=[product.pk]), {**product_form(client, product), "available": "-1"})
    assert client.post(f"/admin/orders/product/{product.pk}/delete/", {"post": "yes"}).status_code == 403

    product.refresh_from_db()
    assert product.available == 10


@pytest.mark.parametrize(
    ("currency", "price", "refused"),
    [
        ("JPY", "12.50", "Expected an amount without decimals: JPY has none."),
        ("JPY", "12.00", ""),
        ("EUR", "12.50", ""),
        ("eur", "12.50", "Expected the three letters (ISO 4217) of a currency, such as EUR."),
        ("EUX", "12.50", "Expected the three letters (ISO 4217) of a currency, such as EUR."),
    ],
)
def test_a_price_that_its_currency_cannot_express_is_refused(operator: Client, currency, price, refused):
    product = mug()
    form = {**product_form(operator, product), "currency": currency, "price": price}

    answer = operator.post(reverse("admin:orders_product_change", args=[product.pk]), form)

    product.refresh_from_db()
    if refused:
        assert refused in answer.text
        assert (product.currency, str(product.price)) == ("EUR", "12.90")
    else:
        assert (product.currency, str(product.price)) == (currency, price)


def test_a_second_product_of_one_sku_is_refused_at_its_field(client: Client, admin_user: Any):
    client.force_login(admin_user)

    answer = client.post("/admin/orders/product/add/", product_form(client, mug()))

    assert answer.status_code == 200
    assert "Product with this SKU already exists." in answer.text
    assert Product.objects.count() == 1


def test_a_page_of_a_large_catalogue_is_under_100_kb(operator: Client):
    Product.objects.bulk_create(
        Product(
            sku=f"PENCIL-CUP-BAMBOO-BLACK-{n}", name=f"Black bamboo pencil cup, extra large, number {n}", price="21.70", available=100_000
        )
        for n in range(60)
    )

    answer = operator.get("/admin/orders/product/")

    assert 30_000 < len(answer.content) < 100_000
    assert answer.context["cl"].result_count == 60
