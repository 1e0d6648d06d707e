"""Notes and owners of orders and incidents at the API: the same rows, checks and rights as on the console's pages."""

from __future__ import annotations

import pytest
from django.contrib.admin.models import LogEntry

from supervision.desk import notes
from supervision.intake.consuming import consume_batch
from supervision.models import Incident, IncidentNote, RunNote
from tests.shopping import a_request, signed_in


@pytest.fixture
def order(customer) -> str:
    """The address of an order that was taken up."""
    public_id = customer.post("/api/v1/orders/", a_request()).json()["id"]
    consume_batch(born=False)
    return f"/api/v1/orders/{public_id}/"


@pytest.fixture
def incident(db) -> Incident:
    return Incident.objects.create(kind="starvation", cause="starvation:submissions")


@pytest.fixture(params=["order", "incident"])
def place(request, order, incident) -> str:
    """The address of what notes and owners belong to."""
    return order if request.param == "order" else f"/api/v1/incidents/{incident.pk}/"


def test_an_operator_adds_a_note_that_operators_and_viewers_read(operator, viewer, place):
    answer = operator.post(f"{place}notes/", {"text": "the bank calls back\nat nine "})
    operator.post(f"{place}notes/", {"text": "it called"})

    listed = viewer.get(f"{place}notes/").json()["results"]
    assert answer.status_code == 201
    assert [(row["author"], row["text"]) for row in listed] == [("olga", "it called"), ("olga", "the bank calls back\nat nine")]
    assert listed[1] == answer.json()
    assert sorted(LogEntry.objects.values_list("user__username", "change_message")) == [
        ("olga", "noted: it called"), ("olga", "noted: the bank calls back\nat nine"),
    ]  # fmt: skip
    assert viewer.get(f"{place}notes/", {"page_size": 1}).json()["next"]


def test_an_operator_hands_over_and_back_and_each_change_is_a_note(operator, viewer, place):
    signed_in("otto", "operator")

    answer = operator.put(f"{place}owner/", {"owner": "otto"})
    again = operator.put(f"{place}owner/", {"owner": "otto"})

    assert (answer.status_code, again.status_code, answer.json()["owner"]) == (200, 200, "otto")
    assert viewer.get(f"{place}owner/").json()["owner"] == "otto"
    assert operator.put(f"{place}owner/", {"owner": None}).json()["owner"] is None
    texts = [row["text"] for row in viewer.get(f"{place}notes/").json()["results"]]
    assert texts == ["Without an owner from now on.", "Assigned to otto."]


def test_the_owner_is_on_the_incident_and_in_the_list(operator, incident):
    operator.put(f"/api/v1/incidents/{incident.pk}/owner/", {"owner": "olga"})

    assert operator.get(f"/api/v1/incidents/{incident.pk}/").json()["owner"] == "olga"
    assert [row["owner"] for row in operator.get("/api/v1/incidents/").json()["results"]] == ["olga"]


@pytest.mark.parametrize("name", ["vera", "ada", "no-such-account"])
def test_who_may_not_act_on_orders_is_given_nothing(operator, viewer, place, name):
    answer = operator.put(f"{place}owner/", {"owner": name})

    assert (answer.status_code, answer.json()["code"]) == (409, "unknown_operator")
    assert operator.get(f"{place}owner/").json()["owner"] is None


@pytest.mark.parametrize(
    ("verb", "path", "body", "field"),
    [
        ("post", "notes", {}, "text"),
        ("post", "notes", {"text": " \n "}, "text"),
        ("post", "notes", {"text": "x" * 2001}, "text"),
        ("post", "notes", {"text": "a\0b"}, "text"),
        ("post", "notes", {"text": "a", "author": "ada"}, "author"),
        ("put", "owner", {}, "owner"),
        ("put", "owner", {"owner": 7}, "owner"),
    ],
)
def test_a_mistake_is_told_at_its_field(operator, place, verb, path, body, field):
    answer = getattr(operator, verb)(f"{place}{path}/", body)

    assert (answer.status_code, list(answer.json()["errors"])) == (400, [field])
    assert [*RunNote.objects.all(), *IncidentNote.objects.all()] == []


def test_a_note_that_is_sent_twice_is_one(operator, place):
    first, second = (operator.post(f"{place}notes/", {"text": "no answer"}).json() for _twice in range(2))

    assert first == second
    assert [row["text"] for row in operator.get(f"{place}notes/").json()["results"]] == ["no answer"]


def test_an_order_takes_notes_up_to_a_bound(operator, order, monkeypatch):
    monkeypatch.setattr(notes, "MOST_NOTES", 1)
    operator.post(f"{order}notes/", {"text": "one"})

    answer = operator.post(f"{order}notes/", {"text": "two"})

    assert (answer.status_code, answer.json()["code"]) == (409, "too_many_notes")


def test_an_incident_that_is_over_takes_neither(operator, incident):
    Incident.objects.update(closed_at="2026-01-01T00:00Z")

    for answer in (
        operator.post(f"/api/v1/incidents/{incident.pk}/notes/", {"text": "late"}),
        operator.put(f"/api/v1/incidents/{incident.pk}/owner/", {"owner": "olga"}),
    ):
        assert (answer.status_code, answer.json()["code"]) == (409, "unknown_incident")


@pytest.mark.parametrize("place", [f"/api/v1/orders/{'n' * 22}/", "/api/v1/incidents/999999/"])
def test_what_does_not_exist_is_not_found(operator, place):
    assert operator.get(f"{place}notes/").status_code == operator.get(f"{place}owner/").status_code == 404
    assert operator.post(f"{place}notes/", {"text": "x"}).status_code == 404
    assert operator.put(f"{place}owner/", {"owner": "olga"}).status_code == 404


def test_an_order_that_waits_to_be_taken_up_takes_notes(operator, customer):
    public_id = customer.post("/api/v1/orders/", a_request()).json()["id"]

    assert operator.post(f"/api/v1/orders/{public_id}/notes/", {"text": "early"}).status_code == 201
    assert operator.put(f"/api/v1/orders/{public_id}/owner/", {"owner": "olga"}).json()["owner"] == "olga"
