"""A request that repeats key and body gets the same answer, after any change and with any number of requests at once."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection

import pytest
from knox.models import AuthToken

from orders.models import Product
from supervision.models import Job, Submission
from tests.shopping import a_product, a_request, an_account, signed_in
from tests.support.console import fail

ORDERS = "/api/v1/orders/"


def place(client, key, **changes):
    return client.post(ORDERS, a_request(**changes), headers={"Idempotency-Key": key})


def test_a_repeated_request_gets_the_first_answer_to_the_letter(customer):
    first = place(customer, "k-1")
    again = customer.post(
        ORDERS, json.dumps(a_request(), indent=3, sort_keys=True), content_type="application/json", headers={"Idempotency-Key": "k-1"}
    )

    assert (again.status_code, again.content, again["Location"]) == (202, first.content, first["Location"])
    assert ("Idempotent-Replayed" in first, again["Idempotent-Replayed"]) == (False, "true")
    assert Submission.objects.count() == 1


def test_a_repeated_request_is_answered_although_price_and_stock_changed(customer, mug):
    first = place(customer, "k-1", expected_total="25.80")
    Product.objects.filter(pk=mug.pk).update(price="99.00", available=0)
    dearer = place(customer, "k-1", expected_total="25.80")
    Product.objects.filter(pk=mug.pk).update(active=False)
    gone = place(customer, "k-1", expected_total="25.80")

    assert first.content == dearer.content == gone.content
    assert place(customer, "k-2").status_code == 400


def test_a_key_with_another_body_is_refused(customer):
    place(customer, "k-1")

    for changes in ({"email": "eve@example.com"}, {"lines": [{"sku": "NOPE", "quantity": 1}]}, {"lines": "x"}):
        answer = place(customer, "k-1", **changes)
        assert (answer.status_code, answer.json()["code"]) == (422, "key_reused")


def test_a_refused_request_leaves_its_key_free(customer):
    assert place(customer, "k-1", email="x").status_code == 400
    assert place(customer, "k-1").status_code == 202


def test_accounts_never_meet_each_others_keys(customer):
    mine = place(customer, "k-1").json()["id"]
    theirs = place(signed_in("eve", "customer"), "k-1", email="eve@example.com")

    assert theirs.status_code == 202
    assert theirs.json()["id"] != mine


@pytest.mark.parametrize("key", ["", "x" * 256, "a\tb", "é"])
def test_a_key_that_no_log_could_show_is_refused(customer, key):
    answer = customer.post(ORDERS, a_request(), headers={"Idempotency-Key": key})

    assert (answer.status_code, list(answer.json()["errors"])) == (400, ["idempotency_key"])


@pytest.mark.django_db(transaction=True)
def test_fifty_simultaneous_requests_with_one_key_place_one_order(live_server):
    a_product()
    token = AuthToken.objects.create(an_account("ada", "customer"))[1]
    body = json.dumps(a_request())
    headers = {"Authorization": f"Token {token}", "Content-Type": "application/json", "Idempotency-Key": "once"}

    def post(_n):
        connection = HTTPConnection(live_server.thread.host, live_server.thread.port, timeout=60)
        connection.request("POST", ORDERS, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.getheader("Location")

    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(post, range(50)))

    assert {status for status, _body, _location in answers} == {202}
    assert len({(content, location) for _status, content, location in answers}) == 1
    assert Submission.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_of_simultaneous_requests_with_one_key_one_starts_a_job_and_the_others_say_that_they_repeat_it(live_server):
    fail(3)
    token = AuthToken.objects.create(an_account("olga", "operator"))[1]
    body = json.dumps({"verb": "resubmit", "filter": {"process_state": "Error"}, "reason": "the bank is back"})
    headers = {"Authorization": f"Token {token}", "Content-Type": "application/json", "Idempotency-Key": "evening"}

    def post(_n):
        connection = HTTPConnection(live_server.thread.host, live_server.thread.port, timeout=60)
        connection.request("POST", "/api/v1/jobs/", body, headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())["id"], answer.getheader("Idempotent-Replayed")

    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(post, range(12)))

    job = Job.objects.get()
    assert {(status, pk) for status, pk, _mark in answers} == {(202, job.pk)}
    assert sorted(mark or "" for _status, _pk, mark in answers) == [""] + ["true"] * 11
