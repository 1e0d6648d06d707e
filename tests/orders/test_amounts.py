"""Amounts are shown with the decimals that they are charged with: those of ISO 4217, where the CLDR has fewer, too."""

from __future__ import annotations

from decimal import Decimal

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import translation

from orders import desk
from orders.formats import money
from orders.gateways.money import from_minor, to_minor
from tests.shopping import a_product, a_request, signed_in

pytestmark = pytest.mark.usefixtures("no_hints")


@pytest.mark.parametrize(
    ("language", "currency", "amount", "shop", "console"),
    [
        ("en", "RSD", "12.50", "RSD12.50", "12.50 RSD"),
        ("it", "RSD", "12.50", "12,50 RSD", "12,50 RSD"),
        ("it", "ALL", "1499.50", "1.499,50 ALL", "1.499,50 ALL"),
        ("pt-br", "IQD", "12.50", "IQD 12,500", "12,500 IQD"),
        ("en", "MGA", "12.00", "MGA12.00", "12.00 MGA"),
        ("en", "KWD", "12.90", "KWD12.900", "12.900 KWD"),
        ("en", "JPY", "1800.00", "¥1,800", "1,800 JPY"),
        ("en", "JPY", "12.50", "¥12.50", "12.50 JPY"),  # no amount of the yen, and still not another one
        ("en", "EUR", "-1234.50", "-€1,234.50", "-1,234.50 EUR"),
        ("en", "EUR", "0", "€0.00", "0.00 EUR"),
        ("en", "EUR", "1E+2", "€100.00", "100.00 EUR"),
    ],
)
def test_an_amount_has_its_currencys_decimals_and_is_not_rounded(language, currency, amount, shop, console) -> None:
    with translation.override(language):
        assert money(amount, currency).replace("\xa0", " ") == shop
        assert desk.money(Decimal(amount), currency).replace("\xa0", " ") == console


@pytest.mark.django_db
def test_a_price_is_the_same_in_the_shop_in_the_console_in_the_order_and_at_the_payment_service(
    client: Client, admin_client: Client
) -> None:
    a_product("PEN", price="12.50", currency="RSD")
    client.post("/cart/PEN/add/", {"quantity": 1})
    order = signed_in("ada", "customer").post("/api/v1/orders/", a_request(lines=[{"sku": "PEN", "quantity": 1}])).json()
    client.force_login(User.objects.get(username="ada"))

    for page in ("/", "/products/PEN/", "/cart/", "/checkout/", f"/orders/{order['id']}/"):
        assert "RSD12.50" in client.get(page).text, page
    assert "12.50 RSD" in admin_client.get("/admin/orders/product/").text
    assert (order["total"], order["currency"]) == ("12.50", "RSD")
    assert (to_minor(order["total"], order["currency"]), from_minor(1250, "rsd")) == (1250, Decimal("12.50"))
