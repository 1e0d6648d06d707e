"""The history of orders: pages, numbers, guests' orders of a verified address, and ordering again."""

from __future__ import annotations

import re

import pytest
from django.db import connection

from orders.accounts import opening
from orders.models import Order, OrderLine, Product
from supervision import testing
from tests.shopping import a_product, an_account, place
from tests.support import pages

pytestmark = [pytest.mark.usefixtures("no_hints"), pytest.mark.django_db]


def numbers(page: str) -> list[str]:
    return re.findall(r"Order ([\d-]+)</a>", page)


def number(public_id: str) -> str:
    return Order.objects.get(public_id=public_id).number


def test_the_history_lists_ones_own_orders_page_by_page_and_back(client, mug, ada, bob) -> None:
    for _ in range(21):
        place(ada)
    place(bob)
    testing.schedule()
    mine = list(Order.objects.filter(account=ada).order_by("-created_at", "-id").values_list("number", flat=True))
    client.force_login(ada)

    first = client.get("/orders/").text
    second = client.get("/orders/" + re.search(r'rel="next" href="([^"]*)"', first).group(1)).text
    third = client.get("/orders/" + re.search(r'rel="next" href="([^"]*)"', second).group(1)).text
    back = client.get("/orders/" + re.search(r'rel="prev" href="([^"]*)"', second).group(1)).text

    assert [numbers(page) for page in (first, second, third)] == [mine[:10], mine[10:20], mine[20:]]
    assert numbers(back) == mine[:10]
    assert 'rel="next"' not in third


def test_the_history_costs_the_same_however_many_orders_it_shows(client, mug, ada, django_assert_max_num_queries) -> None:
    for _ in range(10):
        place(ada)
    testing.schedule()
    client.force_login(ada)

    with django_assert_max_num_queries(7):
        client.get("/orders/")


def test_a_page_of_a_long_history_is_read_by_an_index(ada) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO orders_order (public_id, number, run_id, account_id, email, total, currency, created_at)"
            " SELECT 'p' || n, n::text, n, %s, 'ada@example.com', 1, 'EUR', now() - n * interval '1 min' FROM generate_series(1, 20000) n",
            [ada.pk],
        )
        cursor.execute("ANALYZE orders_order")
    newest = str(Order.objects.filter(account_id=ada.pk).order_by("-created_at", "-id").only("id")[:11].query)

    assert pages.of(newest, None) < 40


def test_the_history_asks_guests_to_sign_in(client, db) -> None:
    assert client.get("/orders/").headers["Location"] == "/accounts/login/?next=/orders/"


def test_guests_orders_are_listed_once_the_address_is_verified(client, mug, ada) -> None:
    guests = place(email="Ada@Example.com")
    servers = place(an_account("server", "client"), email="ada@example.com")
    others = place(an_account("carl", "customer"), email="ada@example.com")  # another account's, to Ada's address
    foreign = place(email="eve@example.com")
    own = place(ada)
    testing.schedule()
    client.force_login(ada)

    before = numbers(client.get("/orders/").text)
    opening.verify(ada.pk, "ada@example.com")
    after = numbers(client.get("/orders/").text)

    assert before == [number(own)]
    assert sorted(after) == sorted(map(number, [guests, servers, own]))
    assert not {number(others), number(foreign)} & set(after)
    ada.email = "new@example.com"  # an operator changed it: what was verified was another address
    ada.save()
    assert numbers(client.get("/orders/").text) == [number(own)]


def test_an_order_is_found_by_its_number_and_no_foreign_one(client, mug, ada, bob) -> None:
    mine, theirs = place(ada), place(bob)
    place(ada)
    testing.schedule()
    client.force_login(ada)

    assert numbers(client.get("/orders/", {"number": number(mine)}).text) == [number(mine)]
    assert numbers(client.get("/orders/", {"number": number(mine).replace("-", " ")}).text) == [number(mine)]
    assert "No order with this number" in client.get("/orders/", {"number": number(theirs)}).text
    assert "No order with this number" in client.get("/orders/", {"number": '"><b>'}).text


def test_an_order_can_be_ordered_again_as_far_as_there_is_stock(client, mug, ada) -> None:
    a_product("CUP", name="Cup")
    order = place(ada, lines=[{"sku": "MUG-BLUE", "quantity": 2}, {"sku": "CUP", "quantity": 1}])
    testing.schedule()
    client.force_login(ada)

    assert "What you ordered then is in your cart" in client.post(f"/orders/{order}/again/", follow=True).text
    client.post("/cart/MUG-BLUE/change/", {"remove": "1"})
    client.post("/cart/CUP/change/", {"remove": "1"})
    Product.objects.filter(sku="CUP").update(active=False)
    assert "Not all of it can be had any more" in client.post(f"/orders/{order}/again/", follow=True).text
    client.post("/cart/MUG-BLUE/change/", {"remove": "1"})
    Product.objects.update(available=0)
    assert "Nothing of it can be had" in client.post(f"/orders/{order}/again/", follow=True).text


def test_all_lines_of_a_product_are_ordered_again(client, mug, ada) -> None:
    order = place(ada, lines=[{"sku": "MUG-BLUE", "quantity": 2}])
    testing.schedule()
    line = OrderLine.objects.get(order__public_id=order)
    OrderLine.objects.create(order=line.order, sku=line.sku, name=line.name, quantity=1, unit_price="1.00")
    client.force_login(ada)

    client.post(f"/orders/{order}/again/")

    assert client.session["cart"] == {"MUG-BLUE": 3}


def test_a_foreign_order_cannot_be_ordered_again(client, mug, ada, bob) -> None:
    order = place(bob)
    client.force_login(ada)

    assert client.post(f"/orders/{order}/again/").status_code == 404
    assert client.get(f"/orders/{order}/again/").status_code == 405
