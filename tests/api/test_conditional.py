"""An order's ETag: 304 for what the client has already, 412 for a verb that was meant for another state."""

from __future__ import annotations

import pytest

from supervision.intake.consuming import consume_batch
from supervision.models import Run, StepEvent, StepState
from supervision.operations import operator_verbs
from tests.shopping import a_request

ORDERS = "/api/v1/orders/"


@pytest.fixture
def failed(customer):
    """The path of an order whose first step is in Error."""
    public_id = customer.post(ORDERS, a_request()).json()["id"]
    consume_batch(born=False)
    StepState.objects.filter(direction="do", position=0).update(process_state="Error", attempt=1)
    Run.objects.update(process_state="Error")
    return f"{ORDERS}{public_id}/"


def test_an_order_that_the_client_has_already_is_not_sent_again(customer, failed):
    first = customer.get(failed)
    again = customer.get(failed, headers={"If-None-Match": f'W/"other", {first["ETag"]}'})
    StepState.objects.filter(position=0).update(last_error="another")
    changed = customer.get(failed, headers={"If-None-Match": first["ETag"]})

    assert first["ETag"].startswith('"')
    assert (again.status_code, again.content, again["ETag"]) == (304, b"", first["ETag"])
    assert (changed.status_code, changed["ETag"] == first["ETag"]) == (200, False)


VERBS = {
    "resubmit": {"reason": "mended"},
    "skip": {"reason": "not needed"},
    "complete": {"reason": "by hand"},
    "compensate": {"reason": "give up"},
    "move": {"reason": "newer"},
    "resume-from": {"reason": "again", "step": "reserve-stock"},
    "pause": {"reason": "wait"},
    "cancel": {"reason": "changed my mind"},
    "payment": {"payment_method": "pm_card_visa"},
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_for_another_state_is_refused_and_does_nothing(operator, customer, failed, verb):
    seen = operator.get(failed)["ETag"]
    StepState.objects.filter(direction="do", position=0).update(attempt=2)
    events = StepEvent.objects.count()

    answer = operator.post(f"{failed}{verb}/", VERBS[verb], headers={"If-Match": seen})

    assert (answer.status_code, answer["Content-Type"]) == (412, "application/problem+json")
    assert answer.json()["code"] == "precondition_failed"
    assert StepEvent.objects.count() == events


@pytest.mark.parametrize("verb", ["resubmit", "skip", "cancel"])
def test_a_verb_for_the_present_state_goes_through(operator, failed, verb):
    tag = operator.get(failed)["ETag"]

    assert operator.post(f"{failed}{verb}/", VERBS[verb], headers={"If-Match": f'"older", {tag}'}).status_code == 202
    assert operator.post(f"{failed}{verb}/", VERBS[verb], headers={"If-Match": tag}).status_code == 412


def test_an_order_that_changes_between_the_comparison_and_the_verb_is_refused(operator, failed, monkeypatch):
    """The comparison holds no lock; the verb compares again under its own."""
    tag, resubmit = operator.get(failed)["ETag"], operator_verbs.resubmit

    def overtaken(*args, **kwargs):
        StepState.objects.filter(direction="do", position=0).update(attempt=2)
        return resubmit(*args, **kwargs)

    monkeypatch.setattr(operator_verbs, "resubmit", overtaken)
    answer = operator.post(f"{failed}resubmit/", VERBS["resubmit"], headers={"If-Match": tag})

    assert (answer.status_code, answer.json()["code"]) == (409, "changed_meanwhile")
    assert Run.objects.get().process_state == "Error"


def test_any_state_is_matched_by_a_star(operator, failed):
    assert operator.post(f"{failed}resubmit/", VERBS["resubmit"], headers={"If-Match": "*"}).status_code == 202


def test_an_expanded_order_brings_its_events_and_returns_in_one_answer(customer, failed):
    answer = customer.get(f"{failed}?expand=events,returns").json()
    plain = customer.get(failed).json()

    assert answer["events"] == {"results": customer.get(f"{failed}events/").json()["results"], "next": None}
    assert answer["returns"] == customer.get(f"{failed}returns/").json()["results"]
    assert {name: answer[name] for name in plain} == plain


def test_an_expanded_order_has_a_bounded_number_of_events_and_leads_to_the_rest(customer, failed, monkeypatch):
    monkeypatch.setattr("orders.api.events.FIRST", 3)
    run = Run.objects.get()
    last = StepEvent.objects.filter(run=run).order_by("-seq").first()
    for seq in range(last.seq + 1, last.seq + 6):
        StepEvent.objects.create(run=run, seq=seq, to_state="Pending", actor="test", at=last.at)

    some = customer.get(f"{failed}?expand=events").json()["events"]
    rest = customer.get(some["next"]).json()["results"]

    assert len(some["results"]) == 3
    assert [event["seq"] for event in some["results"] + rest] == list(range(1, last.seq + 6))


def test_what_cannot_be_expanded_is_refused_by_name(customer, failed):
    answer = customer.get(f"{failed}?expand=events,secrets")

    assert (answer.status_code, answer.json()["errors"]) == (400, {"expand": ["Expected one or several of: events, returns."]})
