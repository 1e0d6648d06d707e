"""Placing orders over the API, and looking at them."""

from __future__ import annotations

import json

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from orders.models import Order, Product
from supervision.intake.consuming import consume_batch
from supervision.models import Run, Submission
from tests.shopping import a_client, a_product, a_request, an_account, order, signed_in

ORDERS = "/api/v1/orders/"


def test_a_customer_places_an_order_at_the_catalogues_price(customer):
    answer = customer.post(ORDERS, a_request(expected_total="25.80"))

    body = answer.json()
    assert answer.status_code == 202
    assert answer["Location"] == f"{ORDERS}{body['id']}/"
    assert len(body["id"]) >= 22
    assert (body["process_state"], body["total"], body["currency"], body["steps"]) == ("Pending", "25.80", "EUR", [])
    assert body["lines"] == [{"sku": "MUG-BLUE", "name": "Product MUG-BLUE", "quantity": 2, "unit_price": "12.90"}]
    assert Submission.objects.get().public_id == body["id"]


def test_an_order_answers_pending_without_steps_until_its_submission_is_consumed(customer):
    public_id = order(customer)

    before = customer.get(f"{ORDERS}{public_id}/").json()
    consume_batch(born=False)
    after = customer.get(f"{ORDERS}{public_id}/").json()

    assert (before["process_state"], before["steps"]) == ("Pending", [])
    assert [step["name"] for step in after["steps"]] == ["reserve-stock", "charge-payment", "book-shipment", "notify-customer"]
    assert before["number"] == after["number"] == Order.objects.get().number
    for field in ("total", "lines", "email", "shipping_address", "created_at", "payment_method"):
        assert before[field] == after[field], field


def test_a_page_of_orders_takes_the_same_queries_however_many_they_are(customer):
    for _ in range(12):
        order(customer)
    consume_batch(born=False)

    with CaptureQueriesContext(connection) as queries:
        page = customer.get(ORDERS, {"page_size": 12}).json()

    assert len(page["results"]) == 12
    assert len(queries) <= 7, [query["sql"] for query in queries]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"lines": [{"sku": "NOPE", "quantity": 1}]}, "lines[0].sku"),
        ({"lines": [{"sku": "MUG-BLUE", "quantity": 1}, {"sku": "GONE", "quantity": 1}]}, "lines[1].sku"),
        ({"lines": [{"sku": "MUG-BLUE", "quantity": 0}]}, "lines[0].quantity"),
        ({"lines": [{"sku": "MUG-BLUE", "quantity": -1}]}, "lines[0].quantity"),
        ({"lines": [{"sku": "MUG-BLUE", "quantity": 1000}]}, "lines[0].quantity"),
        ({"lines": [{"sku": "MUG-BLUE", "quantity": 10**9}]}, "lines[0].quantity"),
        ({"lines": [{"sku": "MUG-BLUE", "quantity": 1.5}]}, "lines[0].quantity"),
        ({"lines": [{"sku": "MUG-BLUE", "quantity": 1.0}]}, "lines[0].quantity"),
        ({"lines": [{"sku": "MUG-BLUE", "quantity": True}]}, "lines[0].quantity"),
        ({"lines": [{"sku": "MUG-BLUE", "quantity": "2"}]}, "lines[0].quantity"),
        ({"lines": [{"sku": "MUG-BLUE", "quantity": None}]}, "lines[0].quantity"),
        ({"lines": [{"sku": "MUG-BLUE", "quantity": 1, "unit_price": "0.01"}]}, "lines[0].unit_price"),
        ({"lines": [{"sku": "MUG-BLUE", "quantity": 600}, {"sku": "MUG-BLUE", "quantity": 600}]}, "lines[0].quantity"),
        ({"lines": []}, "lines"),
        ({"lines": {}}, "lines"),
        ({"lines": [{"sku": "MUG-BLUE", "quantity": 1}] * 101}, "lines"),
        ({"shipping_address": {**a_request()["shipping_address"], "country": "XX"}}, "shipping_address.country"),
        ({"shipping_address": {**a_request()["shipping_address"], "country": "Italy"}}, "shipping_address.country"),
        ({"shipping_address": {**a_request()["shipping_address"], "country": 7}}, "shipping_address.country"),
        ({"shipping_address": {**a_request()["shipping_address"], "city": "  "}}, "shipping_address.city"),
        ({"shipping_address": {**a_request()["shipping_address"], "name": "A\x00da"}}, "shipping_address.name"),
        ({"shipping_address": {**a_request()["shipping_address"], "line3": "x"}}, "shipping_address.line3"),
        ({"shipping_address": None}, "shipping_address"),
        ({"email": "ada"}, "email"),
        ({"email": "ada@example.com\nBcc: all@example.com"}, "email"),
        ({"email": 5}, "email"),
        ({"payment_method": "4242424242424242"}, "payment_method"),
        ({"payment_method": "pm_x y"}, "payment_method"),
        ({"priority": "urgent"}, "priority"),
        ({"session_key": "x" * 201}, "session_key"),
        ({"session_key": "\ud800"}, "session_key"),
        ({"expected_total": 25.8}, "expected_total"),
        ({"expected_total": "NaN"}, "expected_total"),
        ({"expected_total": "1e3"}, "expected_total"),
        ({"reply_to": "payments"}, "reply_to"),
        ({"reply_to": "amq.topic"}, "reply_to"),
        ({"process_state": "Processed"}, "process_state"),
        ({"total": "0.01"}, "total"),
        ({"account": 1}, "account"),
        ({"\ud800": 1}, "\ud800"),
    ],
)
def test_the_api_refuses_a_bad_request_and_names_the_field(customer, change, field):
    a_product("GONE", active=False)

    answer = customer.post(ORDERS, data=json.dumps(a_request(**change)), content_type="application/json")

    body = answer.json()
    assert answer.status_code == 400
    assert answer["Content-Type"] == "application/problem+json"
    assert field.split("[")[0].split(".")[0] in body["errors"]
    assert body["detail"].startswith(f"{field}:")
    assert not Submission.objects.exists()


@pytest.mark.parametrize("body", ["[]", "null", "5", '"x"', "{}"])
def test_the_api_refuses_json_that_is_no_order(customer, body):
    answer = customer.post(ORDERS, data=body, content_type="application/json")

    assert answer.status_code == 400
    assert answer.json()["errors"]


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"{'a': 1}", b'{"email": NaN}', b'{"email": 1e999999, ', b"\xff\xfe", b"[" * 100_000, b'{"a":' * 900 + b"1" + b"}" * 900],
)
def test_the_api_refuses_what_is_not_json(customer, body):
    answer = customer.post(ORDERS, data=body, content_type="application/json")

    assert answer.status_code == 400
    assert answer["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/xml", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"]
)
def test_the_api_refuses_another_content_type(customer, content_type):
    answer = customer.post(ORDERS, data=b"email=ada", content_type=content_type)

    assert (answer.status_code, answer["Content-Type"]) == (415, "application/problem+json")


def test_the_api_refuses_megabytes(customer, shop_server):
    one, eight = b" " * (1024 * 1024 + 1), b" " * (8 * 1024 * 1024 + 1)

    assert customer.post(ORDERS, data=one, content_type="application/json").status_code == 413
    assert shop_server.post(f"{ORDERS}batch/", data=one, content_type="application/json").status_code == 400
    refused = shop_server.post(f"{ORDERS}batch/", data=eight, content_type="application/json")
    assert (refused.status_code, refused["Content-Type"]) == (413, "application/problem+json")


def test_the_customer_learns_the_price_when_it_changed(customer):
    answer = customer.post(ORDERS, a_request(expected_total="20.00"))

    body = answer.json()
    assert (answer.status_code, body["code"], body["total"], body["currency"]) == (409, "price_changed", "25.80", "EUR")
    assert "expected_total" in body["errors"]


@pytest.mark.parametrize(("expected", "status"), [("25.80 EUR", 202), ("25.80 USD", 409), ("25.80EUR", 400), ("25.80 eur", 400)])
def test_the_total_that_is_expected_may_name_its_currency(customer, mug, expected, status):
    answer = customer.post(ORDERS, a_request(expected_total=expected))

    assert answer.status_code == status
    assert status == 202 or "expected_total" in answer.json()["errors"]


def test_the_door_refuses_what_the_catalogue_knows_to_be_sold_out(customer, mug):
    Product.objects.filter(pk=mug.pk).update(available=1)

    answer = customer.post(ORDERS, a_request())

    assert (answer.status_code, answer.json()["code"]) == (409, "out_of_stock")
    assert "quantity" in answer.json()["errors"]["lines"]["0"]


def test_two_lines_of_one_product_become_one(customer):
    lines = [{"sku": "MUG-BLUE", "quantity": 2}, {"sku": "MUG-BLUE", "quantity": 3}]

    body = customer.post(ORDERS, a_request(lines=lines)).json()

    assert [(line["sku"], line["quantity"]) for line in body["lines"]] == [("MUG-BLUE", 5)]
    assert body["total"] == "64.50"


def test_only_a_client_asks_for_high_priority(customer, shop_server):
    refused = customer.post(ORDERS, a_request(priority="high"))
    granted = shop_server.post(ORDERS, a_request(priority="high"))

    assert (refused.status_code, list(refused.json()["errors"])) == (403, ["priority"])
    assert granted.status_code == 202
    consume_batch(born=False)
    assert Run.objects.get().priority == 1


def test_foreign_and_unknown_orders_are_told_apart_by_nobody(customer):
    public_id = order(customer)
    stranger = signed_in("eve", "customer")

    for suffix, verb in (("", "get"), ("events/", "get"), ("cancel/", "post")):
        foreign = getattr(stranger, verb)(f"{ORDERS}{public_id}/{suffix}", {"reason": "x"} if verb == "post" else None)
        unknown = getattr(stranger, verb)(f"{ORDERS}{'x' * 22}/{suffix}", {"reason": "x"} if verb == "post" else None)
        assert (foreign.status_code, foreign.content) == (404, unknown.content)


def test_operators_and_viewers_see_all_orders(customer, operator, viewer):
    public_id = order(customer, consumed=True)

    for client in (operator, viewer):
        assert client.get(f"{ORDERS}{public_id}/").status_code == 200
        assert [order["id"] for order in client.get(ORDERS).json()["results"]] == [public_id]


def test_nobody_orders_without_an_account(mug):
    answer = a_client().post(ORDERS, a_request())

    assert answer.status_code == 401
    assert answer["WWW-Authenticate"].startswith("Token")
    assert answer["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize("header", ["Token", "Token x", "Token a b", "Token \xff\xfe", "Token " + "é" * 8, "Token " + "a" * 64])
def test_a_wrong_token_is_refused_without_a_word_about_why(mug, header):
    answer = a_client().get(ORDERS, headers={"Authorization": header.encode().decode("latin-1")})

    assert answer.status_code == 401


def test_a_session_needs_its_csrf_token(mug):
    account = an_account("ada", "customer")
    browser = type(a_client())(enforce_csrf_checks=True)
    browser.force_login(account)

    refused = browser.post(ORDERS, a_request())

    assert (refused.status_code, refused["Content-Type"]) == (403, "application/problem+json")
    assert browser.get(ORDERS).status_code == 200
