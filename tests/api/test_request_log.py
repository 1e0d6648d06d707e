"""The request log: what API clients change and what they are refused, recorded behind the requests and without personal data."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.db import connection
from django.http import HttpResponse
from django.test import Client, RequestFactory

from supervision.models import ApiRequest
from supervision.requestlog import entries, middleware, recording, tidying
from tests.shopping import a_client, a_request, an_account, order

ORDERS = "/api/v1/orders/"
KEEP = {"REQUEST_LOG_DAYS": 14}


@pytest.fixture
def recorder(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[recording.Recorder]:
    """The log is on. Its thread waits for ever: `written` writes in the test's transaction."""
    settings.SUPERVISION = {**settings.SUPERVISION, **KEEP}
    monkeypatch.setattr(recording, "EVERY_SECONDS", 3600.0)
    made = recording.Recorder()
    monkeypatch.setattr(recording, "_recorder", made)
    yield made
    made._entries, made._missing = [], 0
    made.stop()


def written(recorder: recording.Recorder) -> list[ApiRequest]:
    recorder.write()
    return list(ApiRequest.objects.order_by("pk"))


def test_an_accepted_order_is_one_row_with_its_answers_name_and_its_order(recorder, customer):
    answer = customer.post(ORDERS, a_request(), headers={"Idempotency-Key": "key-of-the-client-1"})
    again = customer.post(ORDERS, a_request(), headers={"Idempotency-Key": "key-of-the-client-1"})

    first, second = written(recorder)

    assert (first.request_id, second.request_id) == (answer["Request-Id"], again["Request-Id"])
    assert (first.method, first.path, first.status, first.kind, first.code) == ("POST", ORDERS, 202, 2, "")
    assert (first.key, second.key) == ("given", "replayed")
    assert {first.order_key, second.order_key} == {answer.json()["id"]}
    assert first.signed_in == "token"
    assert first.milliseconds > 0
    with connection.cursor() as cursor:
        cursor.execute("SELECT now() - at < interval '1 minute', at <= now() FROM supervision_apirequest")
        assert cursor.fetchall() == [(True, True)] * 2


def test_each_account_is_noted_by_its_number_alone(recorder, mug):
    ada, server = an_account("ada@example.com", "customer"), an_account("server", "client")
    a_client(ada).post(ORDERS, a_request())
    a_client(server).post(ORDERS, a_request())
    a_client().post(ORDERS, a_request())

    assert [row.account_id for row in written(recorder)] == [ada.pk, server.pk, None]


def test_what_is_refused_has_its_problem_and_what_only_reads_has_no_row(recorder, customer, throttled):
    public_id = order(customer)
    recorder._entries = []

    customer.get(f"{ORDERS}{public_id}/")
    customer.get(ORDERS)
    customer.get(f"{ORDERS}{'x' * 22}/")
    customer.post(ORDERS, {"lines": []})
    customer.post(f"{ORDERS}{public_id}/resubmit/", {"reason": "because"})
    a_client().get(ORDERS)
    throttled.API_THROTTLE = "1/h"
    a_client().get("/api/v1/products/")
    a_client().get("/api/v1/products/")

    rows = [(row.method, row.status, row.code) for row in written(recorder)]
    assert rows == [
        ("GET", 404, "not_found"),
        ("POST", 400, "invalid"),
        ("POST", 403, "permission_denied"),
        ("GET", 401, "not_authenticated"),
        ("GET", 429, "throttled"),
    ]
    assert [row.order_key for row in ApiRequest.objects.order_by("pk")] == ["x" * 22, "", public_id, "", ""]


def test_other_pages_have_no_row(recorder, mug):
    Client().post("/cart/MUG-BLUE/add/", {"quantity": 1})
    Client().get("/no-such-page/")

    assert written(recorder) == []


@pytest.mark.parametrize(
    ("asked", "kept"),
    [
        ("/api/v1/orders/?email=ada@example.com", "/api/v1/orders/"),
        ("/api/v1/customers/ada@example.com/", "/api/v1/[masked]/[masked]/"),
        ("/api/v1/orders/Ada-Lovelace/", "/api/v1/orders/[masked]/"),
        (f"/api/v1/orders/{'0a' * 32}/", "/api/v1/orders/[masked]/"),
        ("/api/v1/orders/abcdefghij_-klmnopqrstu/events/", "/api/v1/orders/abcdefghij_-klmnopqrstu/events/"),
        ("/api/v1/dead-letters/17/discard/", "/api/v1/dead-letters/17/discard/"),
        ("/api/v1/orders/abcdefghij_-klmnopqrst:split[2]:child/", "/api/v1/orders/abcdefghij_-klmnopqrst:split[2]:child/"),
        ("/api/" + "a/" * 5000, None),
    ],
)
def test_of_the_path_only_our_words_and_ids_are_kept(recorder, customer, asked, kept):
    customer.post(asked, {})

    (row,) = written(recorder)

    assert len(row.path) <= entries.LONGEST
    if kept is not None:
        assert row.path == kept
    assert not re.search("ada|lovelace|0a0a", f"{row.path} {row.order_key}", re.IGNORECASE)


def test_recording_costs_a_request_no_statement(recorder, customer, monkeypatch):
    browser = Client()
    browser.force_login(an_account("vera"))
    seen: list[str] = []
    execute = psycopg.Cursor.execute

    def noted(cursor: Any, query: Any, *rest: Any, **more: Any) -> Any:
        if query != "DISCARD PLANS":
            seen.append(str(query))
        return execute(cursor, query, *rest, **more)

    monkeypatch.setattr(psycopg.Cursor, "execute", noted)
    customer.post(ORDERS, a_request())
    assert len(seen) == 3, seen  # the account, the prices, the submission
    browser.post("/api/v1/nowhere/", {})  # no view asks for the session's account

    assert len(seen) == 3, seen
    assert [entry.account for entry in recorder._entries][1:] == [None]


def test_a_full_queue_counts_what_it_leaves_out(settings, recorder, customer):
    recorder._most = 3
    for _ in range(5):
        customer.post(ORDERS, {})

    rows = written(recorder)

    assert [row.missing for row in rows] == [0, 0, 0, 2]
    assert str(rows[-1]) == "not recorded"
    customer.post(ORDERS, {})
    assert len(written(recorder)) == 5


def test_what_could_not_be_written_waits_and_is_counted(recorder, customer, monkeypatch):
    recorder._most = 2
    customer.post(ORDERS, {})
    insert = recorder._insert

    def down(entries: Any, missing: int) -> None:
        customer.post(ORDERS, {})
        customer.post(ORDERS, {})
        raise RuntimeError("the database is away")

    monkeypatch.setattr(recorder, "_insert", down)
    with pytest.raises(RuntimeError):
        recorder.write()
    monkeypatch.setattr(recorder, "_insert", insert)

    rows = written(recorder)
    assert [row.missing for row in rows] == [0, 0, 1]


def test_an_answer_does_not_depend_on_the_log(recorder, customer, monkeypatch):
    monkeypatch.setattr(entries, "path", lambda request: 1 / 0)

    assert customer.post(ORDERS, a_request()).status_code == 202
    assert written(recorder) == []


def test_no_row_and_no_thread_while_it_is_off(recorder, settings, customer):
    settings.SUPERVISION = {**settings.SUPERVISION, "REQUEST_LOG_DAYS": 0}
    customer.post(ORDERS, a_request())

    assert written(recorder) == []
    assert recorder._loop is None


def test_an_asynchronous_server_records_as_well(recorder, db):
    async def view(request: Any) -> HttpResponse:
        return HttpResponse(status=503)

    request = RequestFactory().post("/api/v1/orders/")
    request.resolver_match = None
    asyncio.run(middleware.recorded(view)(request))

    assert [(row.status, row.path) for row in written(recorder)] == [(503, "/api/v1/orders/")]


# ------------------------------------------------------------------------------------------------------- deleting


def rows(count: int, age: str = "0 days") -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO supervision_apirequest (at, request_id, method, path, status, kind, milliseconds)"
            " SELECT now() - %s::interval, 'r' || i, 'POST', '/api/', 202, 2, 1 FROM generate_series(1, %s) i",
            [age, count],
        )


def test_old_rows_and_those_beyond_the_cap_are_deleted_in_batches(recorder, settings, db, monkeypatch):
    monkeypatch.setattr(tidying, "BATCH", 10)
    rows(25, "15 days")
    rows(25, "13 days")

    assert [tidying.delete_old() for _ in range(3)] == [True, True, False]
    assert ApiRequest.objects.count() == 25

    settings.SUPERVISION = {**settings.SUPERVISION, "REQUEST_LOG_ROWS": 7}
    assert [tidying.delete_old() for _ in range(2)] == [True, False]
    assert ApiRequest.objects.count() == 7
    assert set(ApiRequest.objects.values_list("request_id", flat=True)) == {f"r{n}" for n in range(19, 26)}


def test_switched_off_the_log_is_emptied(settings, db):
    settings.SUPERVISION = {**settings.SUPERVISION, "REQUEST_LOG_DAYS": 0}
    rows(12, "1 second")

    tidying.delete_old()

    assert not ApiRequest.objects.exists()


def test_deleting_reads_the_oldest_rows_through_the_key(db):
    rows(20_000)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE supervision_apirequest")
        statement = tidying._DELETE_OLD.replace("%(batch)s", "100").replace("%(days)s", "1").replace("%(rows)s", "19500")
        cursor.execute("EXPLAIN " + statement)
        plan = "\n".join(line for (line,) in cursor.fetchall())

    assert "Seq Scan" not in plan, plan
