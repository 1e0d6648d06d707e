"""The claims, tested in one process on real PostgreSQL."""

from __future__ import annotations

import json

import pytest
from claims.models import Entry
from django.core import mail

from supervision import PermanentFailure, TransientFailure, models
from supervision.testkit.run import Run

pytestmark = pytest.mark.django_db(transaction=True)
TRAIN = {"employee": "Ada", "items": [{"what": "train", "amount": "80.00"}]}
FLIGHT = {"employee": "Ada", "items": [{"what": "flight", "amount": "350.00"}, {"what": "hotel", "amount": "120.00"}]}


def entries():
    return sorted((entry.kind, str(entry.amount), entry.taken_back) for entry in Entry.objects.all())


def test_a_small_claim_is_paid_without_a_manager(sas):
    run = sas.start("expense-claim", TRAIN)
    run.assert_state("Processed")
    assert run.steps["approval"] == "Skipped"
    assert entries() == [("liability", "80.00", False), ("payment", "80.00", False)]
    sas.assert_healthy()


def test_a_large_claim_is_booked_while_it_waits_for_the_manager(sas):
    run = sas.start("expense-claim", FLIGHT)
    assert (run.steps["book"], run.steps["approval"]) == ("Processed", "Pending")
    run.signal("approval", {"approved": True, "by": "grace"})
    sas.run()
    run.assert_state("Processed")
    assert run.results["decide"] == {"approved_by": "grace"}
    assert entries() == [("liability", "470.00", False), ("payment", "470.00", False)]


def test_a_refused_claim_is_taken_out_of_the_books(sas):
    run = sas.start("expense-claim", FLIGHT)
    run.signal("approval", {"approved": False, "by": "grace"})
    sas.run()
    run.assert_state("Cancelled")
    assert entries() == [("liability", "470.00", True)]


def test_the_manager_is_reminded_and_a_claim_without_a_decision_is_undone(sas):
    run = sas.start("expense-claim", FLIGHT)
    sas.advance("6d")
    assert len(mail.outbox) == 2
    sas.advance("2d")
    run.assert_state("Cancelled")
    assert entries() == [("liability", "470.00", True)]


def test_a_payment_is_made_once_although_the_worker_dies_and_the_bank_is_busy(sas):
    sas.fake("transfer", raises=TransientFailure("the bank is closed"), times=1)
    sas.kill("transfer")
    run = sas.start("expense-claim", TRAIN)
    sas.advance("1h")
    run.assert_state("Processed")
    assert [kind for kind, _, _ in entries()].count("payment") == 1


def test_a_payment_that_fails_is_an_operators_and_only_it(sas):
    sas.fake("transfer", raises=PermanentFailure("the account is closed"), times=1)
    run = sas.start("expense-claim", TRAIN)
    run.assert_state("Processing")
    child = Run(f"{run.key}:pay:child")
    child.assert_state("Error")
    child.resubmit()
    sas.run()
    run.assert_state("Processed")


def test_the_report_runs_every_night(sas):
    sas.start("expense-claim", TRAIN)
    sas.sweep()
    sas.advance("1d")
    [report] = models.Run.objects.filter(workflow="report")
    assert models.StepState.objects.get(run=report).result == {"paid": "80.00"}


def test_a_claim_comes_in_and_is_decided_by_a_person(sas, client, admin_client):
    def post(body):
        return client.post("/claims/", json.dumps(body), content_type="application/json")

    assert post({"employee": "Ada"}).status_code == 400
    assert post({"employee": "Ada", "items": [{"amount": "much"}]}).status_code == 400
    key = post(FLIGHT).json()["id"]
    sas.run()
    assert client.get(f"/claims/{key}/").json()["state"] == "Processing"
    assert client.post(f"/claims/{key}/decision/", {"approved": "yes"}).status_code == 302  # to the login
    for _ in range(2):
        assert admin_client.post(f"/claims/{key}/decision/", {"approved": "yes"}).status_code == 202
    sas.run()
    found = client.get(f"/claims/{key}/").json()
    assert (found["state"], found["results"]["decide"]) == ("Processed", {"approved_by": "admin"})
    assert admin_client.post(f"/claims/{key}/decision/", {"approved": "no"}).status_code == 409
    assert admin_client.post("/claims/unknown/decision/", {"approved": "no"}).status_code == 404


def test_no_definition_changed_without_a_new_version(sas):
    sas.definitions("tests/workflows.json")
