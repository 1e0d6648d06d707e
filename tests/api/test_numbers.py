"""An order has its number from its acceptance, by every way in, and keeps it."""

from __future__ import annotations

import json

import pytest
from django.db import transaction

from orders.intake import number_of, order_number, submission_of
from orders.intake_queue import take
from orders.models import Order
from supervision.insight import directory
from supervision.intake.amqp import Incoming
from supervision.intake.consuming import consume_batch
from supervision.models import Run, Submission
from tests.shopping import a_request

ORDERS = "/api/v1/orders/"


def test_the_202_names_the_number_and_every_later_answer_has_the_same(customer):
    placed = customer.post(ORDERS, a_request(), headers={"Idempotency-Key": "k-1"}).json()
    again = customer.post(ORDERS, a_request(), headers={"Idempotency-Key": "k-1"}).json()
    waiting = customer.get(f"{ORDERS}{placed['id']}/").json()
    consume_batch(born=False)

    consumed = customer.get(f"{ORDERS}{placed['id']}/").json()
    assert placed["number"]
    assert placed["number"] == again["number"] == waiting["number"] == consumed["number"] == Order.objects.get().number
    assert Run.objects.get().payload["number"] == placed["number"]  # where the mails take it from


def test_a_submission_that_is_delivered_again_gets_the_same_number(customer):
    placed = customer.post(ORDERS, a_request()).json()
    with transaction.atomic():
        consume_batch(born=False)
        first = Order.objects.get()
        transaction.set_rollback(True)  # as when its consumer is killed

    consume_batch(born=False)

    second = Order.objects.get()
    assert second.run_id != first.run_id
    assert second.number == first.number == placed["number"]


def test_each_order_of_a_batch_is_told_its_number(shop_server):
    results = shop_server.post(f"{ORDERS}batch/", {"orders": [a_request(), {}, a_request()]}).json()["results"]
    consume_batch(born=False)

    known = dict(Order.objects.values_list("public_id", "number"))
    assert ["number" in result for result in results] == [True, False, True]
    assert {result["id"]: result["number"] for result in results if "id" in result} == known
    assert len(set(known.values())) == 2


def test_an_order_from_the_intake_queue_has_the_number_of_its_submission(shop_server):
    body = json.dumps(a_request()).encode()

    assert take([Incoming(body=body, message_id="m-1", user_id="server", content_type=None, content_encoding=None)]) == [None]
    consume_batch(born=False)

    assert Order.objects.get().number == order_number(Submission.objects.get().pk)


@pytest.mark.parametrize("consumed", [False, True])
def test_an_order_is_found_by_its_number_before_and_after_it_is_taken_up(customer, consumed):
    placed = customer.post(ORDERS, a_request()).json()
    if consumed:
        consume_batch(born=False)

    for said in (placed["number"], placed["number"].replace("-", ""), placed["number"].replace("-", " ")):
        assert directory.find(said).key == placed["id"]
    assert directory.find("999-999-999-9") is None


@pytest.mark.parametrize("submission", [1, 2, 4711, 10**9, 7_999_999_956])
def test_a_number_leads_back_to_its_submission_and_never_looks_like_an_older_one(submission):
    number = order_number(submission)

    assert submission_of(number) == submission
    assert len(number.replace("-", "")) == 10
    assert number >= "200-000-000-0"


def test_orders_from_before_keep_the_number_of_their_run():
    assert number_of({}, 4711) == "261-367-695"
    assert submission_of("261-367-695") is None
