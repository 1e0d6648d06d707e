"""Bulk jobs at the API: previewed, started by any filter of the list, watched, stopped, resumed; a result for each order."""

from __future__ import annotations

import pytest

from orders.models import Order
from supervision.models import Job, StepEvent
from tests.support.console import fail, finish, place, state

JOBS = "/api/v1/jobs/"
pytestmark = pytest.mark.django_db


def body(**changes):
    return {"verb": "resubmit", "filter": {"process_state": "Error"}, "reason": "the bank is back", **changes}


def test_a_dry_run_says_what_would_happen_and_does_nothing(operator):
    fail(2)
    fail(1, at="book-shipment")
    place(1)

    answer = operator.post(JOBS, body(dry_run=True))

    total = Order.objects.first().total
    assert answer.status_code == 200
    said = answer.json()
    assert (said["orders"], said["left_out"]) == (3, 0)
    assert said["held"] == [{"amount": str(3 * total), "currency": "EUR"}]
    assert [(group["orders"], group["steps"], group["error_code"], group["held"]) for group in said["differ"]] == [
        (2, ["charge-payment"], "refused", [{"amount": str(2 * total), "currency": "EUR"}]),
        (1, ["book-shipment"], "refused", [{"amount": str(total), "currency": "EUR"}]),
    ]
    assert not Job.objects.exists()


def test_a_job_is_started_watched_and_its_results_are_read_page_by_page(operator, viewer):
    orders = fail(3)

    started = operator.post(JOBS, body(filter={"error_code": "refused"}))

    assert started.status_code == 202
    job = started.json()
    assert (job["state"], job["total"], job["done"], job["waiting"], job["started_by"]) == ("running", 3, 0, 3, "olga")
    finish()
    shown = viewer.get(f"{JOBS}{job['id']}/", {"page_size": 2}).json()
    rest = viewer.get(shown["next"]).json()
    assert (shown["state"], shown["done"], shown["failed"], shown["in_error_again"]) == ("done", 3, 0, 0)
    results = [*shown["results"], *rest["results"]]
    assert [(row["number"], row["order"], row["outcome"], row["process_state"]) for row in results] == [
        (number, order.public_id, "done", "Processing") for number, order in enumerate(orders, 1)
    ]
    assert rest["next"] is None
    assert {state(order) for order in orders} == {"Processing"}
    assert viewer.get(JOBS, {"state": "done"}).json()["results"] == [
        {name: value for name, value in shown.items() if name in viewer.get(JOBS).json()["results"][0]}
    ]
    assert StepEvent.objects.filter(actor="olga", why__contains=f"(job {job['id']}: error_code=refused)").exists()


def test_a_request_that_is_sent_again_under_its_key_starts_no_second_job(operator, viewer):
    fail(1)
    key = {"Idempotency-Key": "evening"}
    first = operator.post(JOBS, body(), headers=key)
    finish()
    (later,) = fail(1)  # it fits the filter, too

    again = operator.post(JOBS, body(), headers=key)
    others = [operator.post(JOBS, body(**change), headers=key) for change in ({"reason": "no"}, {"verb": "skip"}, {"filter": {"q": "x"}})]

    assert (first.status_code, again.status_code) == (202, 202)
    assert again.json()["id"] == first.json()["id"]
    assert ["Idempotent-Replayed" in answer.headers for answer in (first, again)] == [False, True]
    assert [(one.status_code, one.json()["code"]) for one in others] == [(409, "job_key_reused")] * 3
    assert (Job.objects.count(), state(later)) == (1, "Error")
    assert operator.post(JOBS, body(), headers={"Idempotency-Key": "k" * 256}).status_code == 400
    assert operator.post(JOBS, body(), headers={"Idempotency-Key": "morning"}).status_code == 202
    assert Job.objects.count() == 2


def test_results_are_filtered_by_what_became_of_the_orders(operator):
    orders = fail(2)
    job = operator.post(JOBS, body()).json()["id"]
    operator.post(f"/api/v1/orders/{orders[0].public_id}/skip/", {"reason": "done by hand"})
    finish()

    (changed,) = operator.get(f"{JOBS}{job}/", {"outcome": "changed"}).json()["results"]

    assert (changed["order"], changed["code"]) == (orders[0].public_id, "changed_meanwhile")
    assert operator.get(f"{JOBS}{job}/", {"in_error_again": "true"}).json()["results"] == []


def test_a_job_is_stopped_and_resumed(operator):
    (order,) = fail()
    job = f"{JOBS}{operator.post(JOBS, body()).json()['id']}/"

    stopped = operator.post(f"{job}stop/", {"reason": "wait"})
    finish()
    assert (stopped.status_code, stopped.json()["state"], stopped.json()["stopped_by"]) == (202, "stopped", "olga")
    assert state(order) == "Error"
    assert operator.post(f"{job}stop/", {"reason": "wait"}).status_code == 409

    assert operator.post(f"{job}resume/", {"reason": "go on"}).json()["state"] == "running"
    finish()
    assert operator.get(job).json()["state"] == "done"
    assert state(order) == "Processing"
    assert operator.post(f"{job}resume/", {"reason": "again"}).status_code == 409


def test_a_stopped_job_is_ended(operator):
    (order,) = fail()
    job = f"{JOBS}{operator.post(JOBS, body()).json()['id']}/"
    assert operator.post(f"{job}end/", {"reason": "too soon"}).status_code == 409
    operator.post(f"{job}stop/", {"reason": "wait"})

    ended = operator.post(f"{job}end/", {"reason": "by hand"})

    finish()
    assert (ended.status_code, ended.json()["state"], ended.json()["failed"]) == (200, "done", 1)
    assert operator.get(job).json()["results"][0]["code"] == "job_ended"
    assert state(order) == "Error"


def test_orders_are_corrected_by_a_job(operator):
    (order,) = fail()

    answer = operator.post(JOBS, body(changes={"payment_method": "pm_card_mastercard"}))
    finish()

    assert answer.status_code == 202
    order.run.refresh_from_db()
    assert order.run.payload["payment_method"] == "pm_card_mastercard"


@pytest.mark.parametrize(
    ("changes", "status", "where"),
    [
        ({"verb": "destroy"}, 400, "verb"),
        ({"filter": {"colour": "red"}}, 400, "filter"),
        ({"filter": {"process_state": "Broken"}}, 400, "filter"),
        ({"filter": {"email": {"a": 1}}}, 400, "filter"),
        ({"filter": []}, 400, "filter"),
        ({"reason": ""}, 400, "reason"),
        ({"dry_run": "yes"}, 400, "dry_run"),
        ({"changes": {"payment_method": "\u0000"}}, 400, "changes"),
        ({"unknown": 1}, 400, "unknown"),
        ({"filter": {}}, 409, "filter_required"),
        ({"filter": {"email": "no@example.com"}}, 409, "no_orders"),
        ({"verb": "cancel", "changes": {"email": "a@example.com"}}, 409, "changes_not_possible"),
        ({"changes": {"email": "no address"}}, 409, "invalid_amendment"),
    ],
)
def test_what_makes_no_sense_is_refused_at_its_field(operator, changes, status, where):
    fail()

    answer = operator.post(JOBS, body(**changes))

    assert answer.status_code == status, answer.content
    assert where in (answer.json()["errors"] if status == 400 else [answer.json()["code"]])
    assert not Job.objects.exists()


@pytest.mark.parametrize(
    ("query", "where"), [({"outcome": "odd"}, "outcome"), ({"in_error_again": "odd"}, "in_error_again"), ({"x": "y"}, "x")]
)
def test_unknown_values_of_the_query_are_refused(operator, query, where):
    fail()
    job = operator.post(JOBS, body()).json()["id"]

    assert where in operator.get(f"{JOBS}{job}/", query).json()["errors"]
    assert operator.get(f"{JOBS}{job + 1}/").status_code == 404
