"""The filters of the list of orders: the same names and answers in the API, the console and the commands."""

from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from orders.admin import OrderAdmin
from orders.filters import OrderFilters
from orders.models import Order, Parcel
from supervision.insight.filters import BadFilter
from supervision.models import Alert, Incident, Run, StepState
from supervision.operations import operator_verbs
from supervision.operations.ending.abandoning import abandon
from tests.support.console import ORDERS, fail, place

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("no_hints")]
FILTERS = OrderFilters()


@pytest.fixture
def shelf() -> dict[str, Order]:
    """One order that failed at the payment, and one that is at its first step."""
    (failed,), (fresh,) = fail(), place(email="bob@example.com")
    Order.objects.filter(pk=failed.pk).update(total="99.50", customer="Grace Hopper", created_at="2026-01-02T10:00:00Z")
    Order.objects.filter(pk=fresh.pk).update(customer="Bob O'Neil")
    step = StepState.objects.get(run=failed.run, process_state="Error")
    StepState.objects.filter(run=failed.run, process_state="Error").update(last_error="The card_was 100% declined")
    incident = Incident.objects.create(kind="step_error", cause="step_error:a-cause", orders=1)
    Alert.objects.filter(run=failed.run).delete()
    Alert.objects.create(
        run=failed.run, position=step.position, direction="do", generation=1, kind="error", code="card_declined", cause="step_error:a-cause"
    )
    Parcel.objects.create(key="a-key", order_key=failed.public_id, tracking_number="TRACK-7")
    return {"failed": failed, "fresh": fresh, "incident": incident, "step": step}


def cases(shelf: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """A value that finds the failed order alone, and one that does not, of each filter."""
    return {
        "process_state": ("Error", "Cancelled"),
        "step": (shelf["step"].name, "notify-customer"),
        "error_code": ("card_declined", "card"),
        "error_text": ("CARD_WAS 100%", "cardXwas"),
        "resource": (StepState.objects.get(pk=shelf["step"].pk).agent, "nothing"),
        "email": (shelf["failed"].email, "ada"),
        "created_after": ("2025-12-31", "2100-01-01T00:00:00Z"),
        "created_before": ("2026-01-02T10:00:01Z", "2026-01-02T10:00:00Z"),
        "min_total": ("99.50", "99.51"),
        "max_total": ("99.50", "1"),
        "incident": (str(shelf["incident"].pk), "999999"),
        "customer": ("hop GRACE", "opper"),
        "tracking_number": ("TRACK-7", "TRACK"),
    }


def test_each_filter_finds_what_fits_and_nothing_else(shelf: dict[str, Any]):
    table = cases(shelf)
    assert set(table) == set(FILTERS.fields)

    for name, (fits, fails) in table.items():
        others = set() if name not in ("created_after", "max_total") else {shelf["fresh"]}
        assert set(FILTERS.found({name: fits})) == {shelf["failed"]} | others, name
        assert shelf["failed"] not in set(FILTERS.found({name: fails})), name


@pytest.mark.parametrize("given", [{"step": "charge-payment"}, {"error_text": "refused"}, {"resource": "payment"}])
def test_an_order_that_is_cancelled_after_an_error_is_not_stuck_with_it(operator: Client, given: dict[str, str]):
    stuck, left, undone = fail(3)
    abandon(left.public_id, by="olga", reason="the customer left")
    Run.objects.filter(pk=left.run_id).update(process_state="Cancelled", finished_at=timezone.now())  # its pieces went back
    operator_verbs.compensate(undone.public_id, by="olga", reason="sold out")
    states = dict(Run.objects.values_list("pk", "process_state"))
    assert states == {stuck.run_id: "Error", left.run_id: "Cancelled", undone.run_id: "Compensating"}

    for more in ({}, {"min_total": "0"}):
        assert list(FILTERS.found({**given, **more})) == [stuck]
        listed = operator.get(ORDERS, {**given, **more}).context["cl"].result_list
        assert [row.pk for row in listed] == [stuck.pk]


def test_an_order_whose_undo_fails_is_found_by_that_error(operator: Client):
    (order,) = fail()
    operator_verbs.compensate(order.public_id, by="olga", reason="sold out")
    StepState.objects.filter(run=order.run, direction="undo").update(process_state="Error", last_error="the shelf is locked")
    Run.objects.filter(pk=order.run_id).update(process_state="Error")

    assert list(FILTERS.found({"error_text": "locked"})) == list(FILTERS.found({"step": "reserve-stock"})) == [order]
    assert list(FILTERS.found({"error_text": "refused"})) == list(FILTERS.found({"step": "charge-payment"})) == []


def test_filters_narrow_together(shelf: dict[str, Any]):
    assert list(FILTERS.found({"process_state": "Error", "min_total": "50", "error_code": "card_declined"})) == [shelf["failed"]]
    assert list(FILTERS.found({"process_state": "Error", "max_total": "50"})) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [("process_state", "Error"), ("step", "charge-payment"), ("resource", "payment"), ("error_code", "card_declined"), ("incident", "")],
)
def test_runs_of_parcels_returns_and_refunds_take_no_place_of_a_page_of_orders(shelf: dict[str, Any], name: str, value: str):
    (other,) = fail()  # newer, as the run of a refund is
    Alert.objects.filter(run=other.run).update(code="card_declined", cause="step_error:a-cause")
    run, order = other.run_id, Order.objects.filter(pk=other.pk)
    order.update(run_id=10**9)
    value = value or str(shelf["incident"].pk)

    assert FILTERS.newest(FILTERS.read({name: value}), 1) == [shelf["failed"].run_id]
    order.update(run_id=run)
    assert FILTERS.newest(FILTERS.read({name: value}), 1) == [run]


def test_a_closed_incident_and_a_closed_alert_hold_no_order(shelf: dict[str, Any]):
    Incident.objects.update(closed_at="2026-01-02T10:00:00Z")
    assert list(FILTERS.found({"incident": shelf["incident"].pk})) == []
    Alert.objects.update(closed_at="2026-01-02T10:00:00Z")
    assert list(FILTERS.found({"error_code": "card_declined"})) == []


def test_a_code_in_the_customers_name_is_only_text(shelf: dict[str, Any]):
    assert list(FILTERS.found({"customer": "O'Neil"})) == [shelf["fresh"]]
    for said in ("'", "a:* | b", "!", "(", "\\", "<->"):
        list(FILTERS.found({"customer": said}))


BAD = {
    "process_state": "Broken", "step": "a\tb", "error_text": "x" * 201, "created_after": "yesterday", "created_before": "2026-99-99",
    "min_total": "-1", "max_total": "1,50", "incident": "first", "customer": "a\x00b",
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_value_without_sense_is_refused_at_its_name_everywhere(operator: Client, name: str):
    with pytest.raises(BadFilter) as caught:
        FILTERS.read({name: BAD[name]})
    assert caught.value.name == name

    answer = operator.get("/api/v1/orders/", {name: BAD[name]})
    assert answer.status_code == 400
    assert set(answer.json()["errors"]) == {name}

    page = operator.get(ORDERS, {name: BAD[name]})
    assert page.status_code == 200
    assert str(FILTERS.fields[name].label) + ": " in page.content.decode()
    assert page.context["cl"].result_count == 0

    with pytest.raises(CommandError, match=rf"(^{name}|--{name.replace('_', '-')}[/a-z-]*): "):
        call_command("orders", f"--{name.replace('_', '-')}={BAD[name]}")


def test_api_console_and_command_answer_alike(operator: Client, shelf: dict[str, Any]):
    for name, (fits, _fails) in cases(shelf).items():
        wanted = {order.public_id for order in FILTERS.found({name: fits})}

        listed = operator.get("/api/v1/orders/", {name: fits}).json()["results"]
        shown = operator.get(ORDERS, {name: fits}).context["cl"].result_list
        out = StringIO()
        call_command("orders", f"--{name.replace('_', '-')}={fits}", "--json", stdout=out)

        assert {row["id"] for row in listed} == wanted, name
        assert {order.public_id for order in shown} == wanted, name
        assert {row["id"] for row in json.loads(out.getvalue())} == wanted, name


def test_the_command_knows_short_names_and_ages(shelf: dict[str, Any]):
    def listed(*words: str) -> list[str]:
        out = StringIO()
        call_command("orders", *words, "--json", stdout=out)
        return [row["id"] for row in json.loads(out.getvalue())]

    assert listed("--error", "card_declined") == [shelf["failed"].public_id]
    assert listed("--error", "declin", "--step", "charge-payment") == [shelf["failed"].public_id]  # no code, but a part of the error
    assert listed("--error", "no such error") == []
    with pytest.raises(CommandError, match="give --error or --error-code, not both"):
        listed("--error", "card_declined", "--error-code", "card_declined")
    assert listed("--since", "1h") == [shelf["fresh"].public_id]
    with pytest.raises(CommandError, match="created_after: Expected a time"):
        listed("--since", "1 hour")


def test_the_name_is_written_with_the_order(shelf: dict[str, Any]):
    (order,) = place()

    assert order.customer == Run.objects.get(pk=order.run_id).payload["shipping_address"]["name"] != ""


def test_rare_orders_are_found_by_an_index(shelf: dict[str, Any]):
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
    for name, index in (("min_total", "order_total"), ("customer", "order_customer_plain"), ("tracking_number", "parcel_tracked")):
        source = FILTERS.source(name, FILTERS.read({name: cases(shelf)[name][0]})[name])
        assert index in source.explain(), name


@pytest.mark.parametrize("query", ["process_state=Error", "step=charge-payment", "error_code=refused", "resource=payment", "age=5m"])
def test_a_filtered_page_costs_as_many_statements_for_nine_orders_as_for_two(operator: Client, monkeypatch: Any, query: str):
    fail(10)
    Run.objects.update(created_at=timezone.now() - timedelta(hours=1))

    def statements(rows: int) -> int:
        monkeypatch.setattr(OrderAdmin, "list_per_page", rows)
        with CaptureQueriesContext(connection) as seen:
            html = operator.get(f"{ORDERS}?{query}").content.decode()
        assert html.count('class="action-select"') == rows
        return len(seen)

    statements(2)
    assert statements(9) == statements(2)
