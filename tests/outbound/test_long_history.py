"""The pages of deliveries and of the outbox read the rows that they show, and not all that was delivered before."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection

from supervision.models import Delivery, WebhookEndpoint
from tests.engine.kit import another_connection, fetch
from tests.shopping import account

pytestmark = pytest.mark.django_db
HISTORY = 20_000  # rows that were delivered: some 700 pages
MOST_PAGES = 250
API, CONSOLE, OUTBOX = "/api/v1/deliveries/", "/admin/supervision/delivery/", "/admin/supervision/notification/"
BODY = '{"type":"order.error","timestamp":"2026-01-01T00:00:00Z","data":{"order":"o","seq":1,"status":"error"}}'

ada, olga = account("ada", "client"), account("olga", "operator")


def hook(client: str, name: str) -> WebhookEndpoint:
    return WebhookEndpoint.objects.create(public_id=name, client=client, url=f"https://shop.example/{name}", secret="")


def delivered(endpoint: WebhookEndpoint, start: int, count: int) -> None:
    fetch(
        "INSERT INTO supervision_delivery (public_id, client, endpoint_id, run_id, seq, event, message_id, body, delivered_at)"
        " SELECT 'd' || n, %s, %s, n, 1, 'order.error', 'm' || n, %s, now() FROM generate_series(%s, %s) n",
        [endpoint.client, endpoint.pk, BODY, start, start + count - 1],
    )


@pytest.fixture
def history(ada, settings) -> None:
    """An old webhook with a few deliveries, some given up; then a busy one; then one that has had none yet."""
    settings.API_THROTTLE = None
    with another_connection(autocommit=True) as other:
        other.execute("VACUUM supervision_delivery")
        other.execute("REINDEX TABLE supervision_delivery")  # what an earlier test has rolled back has left empty pages in the indexes
    client = f"user:{User.objects.get(username='ada').pk}"
    old, busy = hook(client, "wh_old"), hook(client, "wh_busy")
    hook(client, "wh_new")
    delivered(old, 1, 30)
    Delivery.objects.update(delivered_at=None, given_up_at="2026-01-04T00:00Z")
    delivered(old, 31, 30)
    delivered(busy, 1_000, HISTORY)
    fetch(
        "INSERT INTO supervision_notification (kind, payload, delivered_at)"
        " SELECT CASE WHEN n %% 5 = 0 THEN 'job' ELSE 'status' END, '{}', now() FROM generate_series(1, %s) n",
        [HISTORY],
    )
    fetch("ANALYZE supervision_delivery, supervision_webhookendpoint, supervision_notification")


def touched(work: Callable[[], Any], table: str) -> int:
    """How many pages the SELECTs from this table touch that `work` sends."""
    seen: list[tuple[str, Any]] = []

    def note(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if sql.startswith("SELECT") and f'FROM "{table}"' in sql:
            seen.append((sql, params))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(note):
        answer = work()
    assert answer.status_code == 200, answer.content
    plans = ["\n".join(row[0] for row in fetch("EXPLAIN (ANALYZE, BUFFERS) " + sql, params)) for sql, params in seen]
    return sum(sum(map(int, re.findall(r"(?:hit|read)=(\d+)", re.search(r"Buffers: (.*)", plan)[1]))) for plan in plans)


@pytest.mark.parametrize(
    "filters",
    [{"state": "given-up"}, {"webhook": "wh_old"}, {"webhook": "wh_new"}, {"webhook": "wh_old", "state": "given-up"}],
)
def test_a_clients_filtered_list_does_not_read_all_its_deliveries(ada, history, filters):
    assert touched(lambda: ada.get(API, filters), "supervision_delivery") < MOST_PAGES


@pytest.mark.parametrize("filters", [{}, {"state": "waiting"}, {"state": "given-up"}, {"state": "delivered"}])
def test_a_clients_list_does_not_read_what_waits_for_another_client(ada, history, filters):
    """The planner expects an account's rows to lie evenly among all rows, and these are the oldest ones."""
    other = hook("user:0", "wh_other")
    delivered(other, 100_000, 2 * HISTORY)
    Delivery.objects.filter(endpoint=other).update(delivered_at=None)
    Delivery.objects.filter(run_id__in=[1_000, 1_001]).update(delivered_at=None)
    fetch("ANALYZE supervision_delivery")
    answers = []

    assert touched(lambda: answers.append(ada.get(API, {**filters, "page_size": "20"})) or answers[0], "supervision_delivery") < MOST_PAGES
    if filters == {"state": "waiting"}:
        assert [row["id"] for row in answers[0].json()["results"]] == ["d1001", "d1000"]
    elif following := answers[0].json()["next"]:
        assert touched(lambda: ada.get(following), "supervision_delivery") < MOST_PAGES


@pytest.mark.parametrize("filters", [{"state": "given-up"}, {"webhook": "wh_old"}, {"webhook": "wh_new"}])
def test_an_operators_filtered_list_does_not_read_those_of_all_accounts(olga, history, filters):
    assert touched(lambda: olga.get(API, filters), "supervision_delivery") < MOST_PAGES


@pytest.mark.parametrize("state", ["given-up", "waiting", "failing"])
def test_the_consoles_list_of_deliveries_reads_those_of_the_state(operator, history, state):
    assert touched(lambda: operator.get(CONSOLE, {"state": state}), "supervision_delivery") < MOST_PAGES


def test_the_consoles_list_of_what_is_undelivered_does_not_read_what_was_delivered(operator, history):
    fetch("INSERT INTO supervision_notification (kind, payload) VALUES ('job', '{}'), ('status', '{}')")
    fetch("INSERT INTO supervision_notification (kind, payload, given_up_at) VALUES ('incident', '{}', now())")

    cost = touched(lambda: operator.get(OUTBOX, {"undelivered": "yes"}), "supervision_notification")

    listed = operator.get(OUTBOX, {"undelivered": "yes"}).context["cl"].result_list
    assert {(row.kind, row.given_up_at is None) for row in listed} == {("job", True), ("status", True), ("incident", False)}
    assert operator.get(OUTBOX, {"undelivered": "no"}).context["cl"].result_count == 10_000
    assert cost < MOST_PAGES
