"""Many orders in one request."""

from __future__ import annotations

import pytest

from supervision.models import Submission
from tests.shopping import a_request

BATCH = "/api/v1/orders/batch/"


def test_a_batch_answers_each_order_and_accepts_the_good_ones(shop_server):
    orders = [
        a_request(),
        a_request(lines=[{"sku": "NOPE", "quantity": 1}]),
        a_request(expected_total="1.00"),
        {**a_request(), "idempotency_key": "k-1"},
        {**a_request(), "idempotency_key": "k-1"},
        {**a_request(email="b@example.com"), "idempotency_key": "k-1"},
        {**a_request(), "idempotency_key": 5},
        "no order",
    ]

    answer = shop_server.post(BATCH, {"orders": orders})

    results = answer.json()["results"]
    assert answer.status_code == 202
    assert [result["index"] for result in results] == list(range(8))
    assert [result["status"] for result in results] == [202, 400, 409, 202, 202, 422, 400, 400]
    assert results[3]["id"] == results[4]["id"] != results[0]["id"]
    assert all(result["errors"] for result in results if result["status"] != 202)
    assert Submission.objects.count() == 2


def test_a_batch_sent_again_under_its_key_places_nothing_twice(shop_server):
    orders = [a_request(), a_request()]

    first = shop_server.post(BATCH, {"orders": orders}, headers={"Idempotency-Key": "b-1"})
    again = shop_server.post(BATCH, {"orders": orders}, headers={"Idempotency-Key": "b-1"})

    assert first.content == again.content
    assert [one.headers.get("Idempotent-Replayed") for one in (first, again)] == [None, "true"]
    assert Submission.objects.count() == 2
    more = shop_server.post(BATCH, {"orders": [*orders, a_request()]}, headers={"Idempotency-Key": "b-1"})
    assert "Idempotent-Replayed" not in more.headers


def test_five_hundred_orders_are_one_commit(shop_server, django_assert_max_num_queries):
    with django_assert_max_num_queries(6):
        answer = shop_server.post(BATCH, {"orders": [a_request()] * 500})

    assert {result["status"] for result in answer.json()["results"]} == {202}
    assert Submission.objects.values("created_at").distinct().count() == 1


@pytest.mark.parametrize("body", [{}, {"orders": []}, {"orders": "x"}, {"orders": [{}] * 501}, {"orders": [{}], "dry_run": True}])
def test_a_batch_that_is_none_is_refused(shop_server, body):
    answer = shop_server.post(BATCH, body)

    assert answer.status_code == 400
    assert answer.json()["errors"]
