"""Cancelling, and the operator's verbs."""

from __future__ import annotations

import os
import socket

import pytest

from supervision.intake.consuming import consume_batch
from supervision.models import DeadLetter, Run, StepEvent, StepState, Submission
from supervision.operations import operator_verbs
from tests.shopping import a_request

ORDERS = "/api/v1/orders/"


@pytest.fixture
def order(customer):
    """A placed order that no consumer has taken up yet."""
    return customer.post(ORDERS, a_request()).json()["id"]


@pytest.fixture
def failed(order):
    """An order whose first step is in Error: it was refused and had no effect."""
    consume_batch(born=False)
    run = Run.objects.get(key=order)
    StepState.objects.filter(run=run, direction="do", position=0).update(process_state="Error", attempt=1, last_error="refused")
    Run.objects.filter(pk=run.pk).update(process_state="Error")
    return order


def verb(client, order, name, **body):
    return client.post(f"{ORDERS}{order}/{name}/", {"reason": "because", **body})


def test_a_customer_cancels_before_anything_ran(customer, order):
    answer = verb(customer, order, "cancel")
    consume_batch(born=False)

    assert answer.status_code == 202
    assert answer.json()["cancel_requested_at"]
    assert Run.objects.get(key=order).process_state == "Cancelled"
    assert verb(customer, order, "cancel").status_code == 409


def test_cancelling_needs_a_reason_and_nothing_else(customer, order):
    for body in ({}, {"reason": ""}, {"reason": "x" * 1001}, {"reason": 5}, {"reason": "x", "force": True}):
        answer = customer.post(f"{ORDERS}{order}/cancel/", body)
        assert (answer.status_code, bool(answer.json()["errors"])) == (400, True)
    assert Submission.objects.get().cancel_requested_at is None


def test_a_verb_on_a_dead_letter_says_why_it_is_one_and_what_settles_it(operator, order):
    Submission.objects.filter(public_id=order).update(payload='{"not": "an order"}')
    consume_batch(born=False)
    letter = DeadLetter.objects.get()

    answer = verb(operator, order, "resubmit")

    assert (answer.status_code, answer.json()["code"]) == (409, "dead_letter")
    assert f"The order is a dead letter ({letter.pk}): {letter.reason.splitlines()[0].rstrip(' .')}." in answer.json()["detail"]


def test_what_is_not_taken_up_yet_cannot_be_steered(operator, order):
    assert verb(operator, order, "resubmit").json()["code"] == "not_taken_up"
    assert operator.get(f"{ORDERS}{order}/plan/").status_code == 409
    assert verb(operator, "x" * 22, "resubmit").status_code == 404


def test_an_operator_looks_at_the_plan_and_resubmits_the_failed_step(operator, failed):
    plan = operator.get(f"{ORDERS}{failed}/plan/", {"action": "resubmit"}).json()
    answer = verb(operator, failed, "resubmit", attempt=1, plan_version=plan["version"])

    assert plan["steps"][0]["action"] == "run"
    assert set(plan["steps"][0]) == {"name", "direction", "action", "idempotency_key", "key_reused"}
    assert (answer.status_code, answer.json()["process_state"]) == (202, "Processing")
    assert StepEvent.objects.filter(run__key=failed, actor="olga").exists()


def test_only_the_first_who_saw_the_attempt_resubmits(operator, failed):
    assert verb(operator, failed, "resubmit", attempt=0).status_code == 409
    assert verb(operator, failed, "resubmit", attempt=1).status_code == 202
    assert verb(operator, failed, "resubmit", attempt=1).json()["code"] == "changed_meanwhile"


def test_a_plan_that_is_out_of_date_is_refused(operator, failed):
    for name in ("resubmit", "skip", "compensate"):
        assert verb(operator, failed, name, plan_version="old").json()["code"] == "changed_meanwhile"


def test_an_operator_undoes_or_skips(operator, failed):
    assert verb(operator, failed, "skip").status_code == 202
    assert verb(operator, failed, "compensate").status_code == 202
    assert Run.objects.get(key=failed).process_state in ("Compensating", "Cancelled")


@pytest.mark.parametrize(
    "body", [{"attempt": "1"}, {"attempt": True}, {"new_generation": "yes"}, {"amend": {"total": "1.00"}}, {"amend": {"email": "x"}}]
)
def test_a_resubmission_is_read_strictly(operator, failed, body):
    assert verb(operator, failed, "resubmit", **body).status_code == 400


def test_a_correction_outside_the_failed_step_is_refused(operator, failed):
    answer = verb(operator, failed, "resubmit", amend={"email": "new@example.com"})

    assert (answer.status_code, answer.json()["code"]) == (409, "not_amendable")


def test_the_history_names_steps_and_actors(customer, operator, failed):
    operator_verbs.resubmit(failed, by="olga", reason="fixed")

    events = operator.get(f"{ORDERS}{failed}/events/").json()["results"]

    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert set(events[0]) == {"seq", "at", "step", "direction", "attempt", "from", "to", "actor", "why"}
    resubmitted = next(event for event in events if event["step"] == "reserve-stock" and event["actor"] == "olga")
    assert (resubmitted["from"], resubmitted["to"], resubmitted["why"]) == ("Error", "Pending", "fixed")
    later = customer.get(f"{ORDERS}{failed}/events/", headers={"Last-Event-ID": str(events[-2]["seq"])}).json()["results"]
    assert [event["seq"] for event in later] == [events[-1]["seq"]]


def test_owners_see_no_operators_name_no_reason_of_theirs_and_no_host(customer, operator, failed):
    operator_verbs.resubmit(failed, by="olga", reason="the address was wrong, says olga")
    answers = [customer.get(f"{ORDERS}{failed}/events/"), customer.get(f"{ORDERS}{failed}/?expand=events")]
    streamed = b"".join(customer.get(f"{ORDERS}{failed}/events/", headers={"Accept": "text/event-stream"}).streaming_content)

    for said in (*(answer.content for answer in answers), streamed):
        assert b"olga" not in said
        assert f"{socket.gethostname()}-{os.getpid()}-".encode() not in said  # short ones alone may stand in a random id
    assert {event["actor"] for event in answers[0].json()["results"]} == {"engine", "shop"}
    customer.post(f"{ORDERS}{failed}/cancel/", {"reason": "I have changed my mind"})
    last = customer.get(f"{ORDERS}{failed}/events/").json()["results"]
    assert {(event["actor"], event["why"]) for event in last if event["why"]} == {("ada", "I have changed my mind")}
