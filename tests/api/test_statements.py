"""How many statements a request sends. Each one costs a round trip, and placing orders is the shop's most frequent request."""

from __future__ import annotations

import psycopg
import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from orders.models import Product
from supervision.intake.submission import new_public_id
from tests.engine import kit
from tests.shopping import a_product, a_request, signed_in

ORDERS = "/api/v1/orders/"
FEW_LINES = [{"sku": "MUG-BLUE", "quantity": 1}]


@pytest.fixture
def statements(monkeypatch):
    """Every statement that goes to the database, Django's own included; the one that drops old plans comes once a second."""
    seen: list[str] = []
    execute = psycopg.Cursor.execute

    def noted(cursor, query, *args, **kwargs):
        if query != "DISCARD PLANS":
            seen.append(str(query))
        return execute(cursor, query, *args, **kwargs)

    monkeypatch.setattr(psycopg.Cursor, "execute", noted)
    return seen


def test_an_order_is_placed_in_three_statements_however_many_lines_it_has(customer, statements):
    skus = [a_product(f"SKU-{n}").sku for n in range(20)]
    statements.clear()

    answer = customer.post(ORDERS, a_request(lines=[{"sku": sku, "quantity": 1} for sku in skus]))

    assert answer.status_code == 202
    assert len(statements) == 3, statements  # the account, the prices, the submission


def test_a_key_of_the_clients_own_costs_no_further_statement(customer, statements):
    statements.clear()

    answer = customer.post(ORDERS, a_request(lines=FEW_LINES), headers={"Idempotency-Key": new_public_id()})

    assert answer.status_code == 202
    assert len(statements) == 3, statements


@pytest.mark.parametrize("second_factor", ["required", "off"])
def test_a_signed_in_shoppers_rights_and_groups_are_read_in_one_statement(mug, statements, settings, second_factor):
    settings.CONSOLE_SECOND_FACTOR = second_factor
    signed_in("ada", "customer")
    browser = Client()
    browser.force_login(User.objects.get(username="ada"))
    statements.clear()

    assert browser.post(ORDERS, a_request(lines=FEW_LINES), "application/json").status_code == 202
    assert len(statements) == 5, statements  # the session, the account, its rights and groups, the prices, the submission
    statements.clear()

    assert browser.get(ORDERS).status_code == 200
    assert len(statements) == 4, statements


def test_counting_requests_costs_one_statement_more(customer, throttled, statements):
    throttled.API_THROTTLE = "1000/min"
    statements.clear()

    assert customer.post(ORDERS, a_request(lines=FEW_LINES)).status_code == 202

    assert len(statements) <= 5, statements  # the fifth deletes old counts, once in a thousand requests


def test_a_batch_is_placed_in_as_many_statements_as_one_order(shop_server, statements):
    statements.clear()

    answer = shop_server.post(f"{ORDERS}batch/", {"orders": [a_request(lines=FEW_LINES) for _ in range(50)]})

    assert [result["status"] for result in answer.json()["results"]] == [202] * 50
    assert len(statements) == 3, statements


def test_every_order_is_priced_by_the_catalogue_as_it_is_this_moment(customer):
    """The application must not cache prices to save a statement."""
    before = customer.post(ORDERS, a_request(lines=FEW_LINES)).json()["total"]
    Product.objects.filter(sku="MUG-BLUE").update(price="13.90")

    assert (before, customer.post(ORDERS, a_request(lines=FEW_LINES)).json()["total"]) == ("12.90", "13.90")


def test_rights_are_those_of_this_moment(customer):
    """Nor may it cache the account: an account that was taken out of the group can no longer buy."""
    assert customer.post(ORDERS, a_request(lines=FEW_LINES)).status_code == 202
    User.objects.get(username="ada").groups.clear()

    assert customer.post(ORDERS, a_request(lines=FEW_LINES)).status_code == 403


@pytest.mark.django_db(transaction=True)
def test_an_order_is_accepted_although_the_database_has_closed_the_connection(customer):
    """As after a restart of the database: the first statement fails and is repeated."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        (pid,) = cursor.fetchone()
    with kit.another_connection() as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])

    assert customer.post(ORDERS, a_request(lines=FEW_LINES)).status_code == 202
