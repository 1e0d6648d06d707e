"""The API's endpoints for pauses, resources and queues."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from supervision import testing
from supervision.governance import resources
from supervision.intake.consuming import consume_batch
from supervision.models import Pause, Resource, Slot
from supervision.postgres import db
from supervision.wakeup import hints
from tests.shopping import a_product, account, order, signed_in

pytestmark = pytest.mark.django_db
PAUSES, RESOURCES = "/api/v1/pauses/", "/api/v1/resources/"
olga = account("olga", "operator")


@pytest.fixture(autouse=True)
def _quiet(settings: Any, no_hints: None) -> None:
    settings.API_THROTTLE = None


@pytest.fixture
def ada() -> APIClient:
    a_product()
    return signed_in("ada", "customer")


def test_an_operator_pauses_looks_and_resumes(olga: APIClient):
    made = olga.post(PAUSES, {"scope": "agent", "name": "payment", "reason": "the bank called", "until": "2h"})

    assert made.status_code == 201
    body = made.json()
    assert {"scope": "agent", "name": "payment", "reason": "the bank called", "paused_by": "olga", "active": True}.items() <= body.items()
    assert body["until"] > body["paused_at"]
    assert [row["id"] for row in olga.get(PAUSES, {"active": "true"}).json()["results"]] == [body["id"]]

    ended = olga.delete(f"{PAUSES}{body['id']}/?reason=it+works+again")

    assert (ended.status_code, ended.json()["active"]) == (200, False)
    assert (ended.json()["lifted_by"], ended.json()["lift_reason"]) == ("olga", "it works again")
    assert olga.delete(f"{PAUSES}{body['id']}/").status_code == 409
    assert olga.get(PAUSES, {"active": "true"}).json()["results"] == []
    assert len(olga.get(PAUSES).json()["results"]) == 1


def test_a_reason_to_resume_may_come_as_a_body(olga: APIClient):
    made = olga.post(PAUSES, {"scope": "all", "reason": "r"}).json()

    assert olga.delete(f"{PAUSES}{made['id']}/", {"why": "x"}).status_code == 400
    assert olga.delete(f"{PAUSES}{made['id']}/", {"reason": "done"}).json()["lift_reason"] == "done"


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        ({"scope": "agent", "name": "paymnet", "reason": "r"}, "name", "there are: .*payment"),
        ({"scope": "workflow", "name": "x", "reason": "r"}, "name", "there are: .*fulfil-order"),
        ({"scope": "all", "name": "x", "reason": "r"}, "name", "has none"),
        ({"scope": "order", "name": "no-such-order", "reason": "r"}, "name", "no-such-order"),
        ({"scope": "queue", "name": "x", "reason": "r"}, "scope", "Expected one of"),
        ({"scope": "all"}, "reason", "required"),
        ({"scope": "all", "reason": "r", "until": "soon"}, "until", "15m"),
        ({"scope": "all", "reason": "r", "until": "2020-01-01T00:00:00Z"}, "until", "passed"),
        ({"scope": "all", "reason": "r", "until": "9999-12-31T23:59-12:00"}, "until", "at most ten years from now"),
        ({"scope": "all", "reason": "r", "untill": "2h"}, "untill", "not known"),
    ],
)
def test_a_mistake_names_its_field(olga: APIClient, body: dict[str, Any], field: str, words: str):
    answer = olga.post(PAUSES, body)

    assert (answer.status_code, answer["Content-Type"]) == (400, "application/problem+json")
    assert list(answer.json()["errors"]) == [field]
    assert re.search(words, str(answer.json()["errors"][field]))
    assert not Pause.objects.exists()


def test_an_order_is_paused_and_resumed_at_its_own_address(olga: APIClient, ada: APIClient):
    public_id = order(ada)
    address = f"/api/v1/orders/{public_id}/"

    paused = olga.post(f"{address}pause/", {"reason": "an odd address", "until": "15m"})
    consume_batch()

    assert paused.status_code == 202
    assert testing.run_of(public_id).process_state == "Pending"
    assert "is paused by olga until" in olga.get(address).json()["waiting_because"]
    assert "an odd address" in olga.get(address).json()["waiting_because"]
    resumed = olga.post(f"{address}resume/", {"reason": "it is right"})
    assert (resumed.status_code, olga.post(f"{address}resume/", {"reason": "again"}).status_code) == (202, 409)
    assert Pause.objects.get().lift_reason == "it is right"
    assert olga.post("/api/v1/orders/" + "x" * 22 + "/pause/", {"reason": "r"}).status_code == 404
    assert olga.post("/api/v1/orders/" + "x" * 22 + "/resume/", {"reason": "r"}).status_code == 404
    for wrong in ("yesterday", "9999-12-31T23:59-12:00"):
        assert olga.post(f"{address}pause/", {"reason": "r", "until": wrong}).json()["errors"]["until"]


def test_the_owner_learns_that_it_is_paused_but_not_what_operators_write(olga: APIClient, ada: APIClient):
    public_id = order(ada, consumed=True)
    olga.post(f"/api/v1/orders/{public_id}/pause/", {"reason": "suspicion of fraud"})

    told = ada.get(f"/api/v1/orders/{public_id}/").json()["waiting_because"]
    listed = ada.get("/api/v1/orders/").json()["results"][0]["waiting_because"]

    assert told == listed
    assert told.startswith("The order is paused since ")
    assert "olga" not in told
    assert "suspicion of fraud" in olga.get("/api/v1/orders/").json()["results"][0]["waiting_because"]


def test_an_order_that_is_not_taken_up_says_why(ada: APIClient):
    public_id = order(ada)

    assert "waits to be taken up" in ada.get(f"/api/v1/orders/{public_id}/").json()["waiting_because"]


def test_a_list_of_orders_asks_why_they_wait_as_often_for_many_as_for_few(olga: APIClient, ada: APIClient, monkeypatch: pytest.MonkeyPatch):
    asked: list[str] = []
    fetch = db.fetch
    monkeypatch.setattr(db, "fetch", lambda *args: asked.append(args[0]) or fetch(*args))
    counts = []
    for more in (1, 5):
        for _ in range(more):
            order(ada, consumed=True)
        asked.clear()
        with CaptureQueriesContext(connection) as queries:
            assert all(row["waiting_because"] for row in olga.get("/api/v1/orders/").json()["results"])
        counts.append((len(queries), len(asked)))

    assert counts[0] == counts[1]


@pytest.fixture
def bank() -> Resource:
    Resource.objects.filter(name="payment").delete()
    row = Resource.objects.create(name="payment", capacity=5, last_error="503", breaker_threshold=5)
    resources.forget()
    return row


def test_resources_tell_limits_breaker_and_load(olga: APIClient, ada: APIClient, bank: Resource):
    public_id = order(ada, consumed=True)
    testing.schedule()
    Slot.objects.create(resource="payment", run_id=1, direction="do", position=1, attempt=1, holder="x", until="2100-01-01T00:00Z")
    Slot.objects.create(resource="payment", run_id=2, direction="do", position=1, attempt=1, holder="x", until="2000-01-01T00:00Z")

    listed = {row["name"]: row for row in olga.get(RESOURCES).json()["results"]}

    facts = listed["payment"]
    assert {"service": "payment", "capacity": 5, "in_flight": 1, "breaker_state": "closed", "last_error": "503"}.items() <= facts.items()
    assert facts == olga.get(f"{RESOURCES}payment/").json()
    assert olga.get(f"{RESOURCES}no-such-resource/").status_code == 404
    assert public_id


def test_an_operator_changes_limits_and_it_is_on_record(olga: APIClient, bank: Resource, monkeypatch: pytest.MonkeyPatch):
    sent: list[str] = []
    monkeypatch.setattr(hints, "send", sent.append)

    answer = olga.patch(f"{RESOURCES}payment/", {"capacity": 2, "rate_per_second": 1.5, "paused": True})

    assert answer.status_code == 200
    assert {"capacity": 2, "rate_per_second": 1.5, "paused": True, "breaker_threshold": 5}.items() <= answer.json().items()
    assert LogEntry.objects.get().change_message == "capacity: 5 -> 2; rate_per_second: none -> 1.5; paused: False -> True"
    assert sent == [hints.SCHEDULE]
    assert resources.look().by_name["payment"].capacity == 2  # this process sees it at once
    assert olga.patch(f"{RESOURCES}payment/", {"capacity": None}).json()["capacity"] is None
    assert olga.patch(f"{RESOURCES}payment/", {}).status_code == 200
    assert LogEntry.objects.count() == 2
    assert olga.patch(f"{RESOURCES}no-such-resource/", {"capacity": 1}).status_code == 404


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"capacity": 0}, "capacity"),
        ({"capacity": "5"}, "capacity"),
        ({"capacity": True}, "capacity"),
        ({"capacity": 2**31}, "capacity"),
        ({"rate_per_second": 0}, "rate_per_second"),
        ({"rate_per_second": "fast"}, "rate_per_second"),
        ({"rate_per_second": 1e9}, "rate_per_second"),
        ({"paused": "yes"}, "paused"),
        ({"paused": None}, "paused"),
        ({"breaker_threshold": 0}, "breaker_threshold"),
        ({"cool_down_seconds": -1}, "cool_down_seconds"),
        ({"probe_limit": None}, "probe_limit"),
        ({"breaker_state": "closed"}, "breaker_state"),
        ({"settings": {}}, "settings"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused_by_its_field(olga: APIClient, bank: Resource, body: dict[str, Any], field: str):
    answer = olga.patch(f"{RESOURCES}payment/", body)

    assert answer.status_code == 400
    assert list(answer.json()["errors"]) == [field]
    bank.refresh_from_db()
    assert (bank.capacity, LogEntry.objects.count()) == (5, 0)


def test_changing_a_limit_leaves_the_breaker_alone(olga: APIClient, bank: Resource, monkeypatch: pytest.MonkeyPatch):
    Resource.objects.filter(pk=bank.pk).update(breaker_state="open", failures=9)

    olga.patch(f"{RESOURCES}payment/", {"capacity": 3})

    bank.refresh_from_db()
    assert (bank.breaker_state, bank.failures, bank.capacity) == ("open", 9, 3)


def test_queues_tell_load_and_recommended_consumers(olga: APIClient, ada: APIClient):
    order(ada, consumed=True)

    stock = next(row for row in olga.get("/api/v1/queues/").json()["results"] if row["agent"] == "stock")

    assert (stock["waiting"], stock["running"], stock["consumers"], stock["recommended_consumers"]) == (1, 0, 0, 1)
    assert olga.get("/api/v1/queues/", {"agent": "stock"}).status_code == 400
