"""Incidents at the API: a list, a page with the held orders, acknowledging with a reason; an order names its incidents."""

from __future__ import annotations

import pytest

from orders.models import Order
from supervision import testing
from supervision.errors import PermanentFailure
from supervision.incidents import lifecycle
from supervision.intake.consuming import consume_batch
from supervision.models import Incident
from supervision.recovery import decisions, failures
from supervision.states import Claim
from supervision.store import step_verbs
from tests.shopping import a_request

INCIDENTS = "/api/v1/incidents/"


def stopped(customer, *, code: str = "out_of_order") -> str:
    """An order whose first step has failed for good; the supervisor has looked for incidents after that."""
    public_id = customer.post("/api/v1/orders/", a_request()).json()["id"]
    consume_batch(born=False)
    ((place, claims),) = testing.schedule()
    items = step_verbs.start(place, claims)
    failure = decisions.as_failure(PermanentFailure("no luck", code=code))
    # The first step's own policy is to undo. These tests set the policy that waits for an operator.
    failures.fail(place, [(Claim(items[0].run_id, items[0].attempt), failure)])
    return public_id


@pytest.fixture
def asking(settings):
    """A step that is refused for good puts its order into Error, where it waits for an operator."""
    settings.SUPERVISION = {**settings.SUPERVISION, "ON_PERMANENT": "error"}


@pytest.fixture
def stands(customer, asking):
    """One open incident that holds one order."""
    public_id = stopped(customer)
    lifecycle.look()
    return public_id, Incident.objects.get()


def test_the_open_ones_are_listed_and_shown_with_the_orders_and_the_money_they_hold(customer, viewer, stands, settings):
    settings.PUBLIC_URL = "https://orders.example"
    public_id, row = stands

    (listed,) = viewer.get(INCIDENTS, {"open": "true"}).json()["results"]
    shown = viewer.get(f"{INCIDENTS}{row.pk}/").json()

    assert listed.items() <= shown.items()
    assert (shown["kind"], shown["step"], shown["code"], shown["severity"]) == ("step_error", "reserve-stock", "out_of_order", "warning")
    assert shown["cause"] == "step_error:fulfil-order:reserve-stock:do::out_of_order"
    assert (shown["orders"], shown["order_ids"]) == (1, [public_id])
    order = Order.objects.get()
    assert shown["held"] == [{"amount": str(order.total), "currency": order.currency}]
    assert shown["link"] == f"https://orders.example/admin/supervision/incident/{row.pk}/change/"
    assert (shown["closed_at"], shown["acknowledged_at"], shown["acknowledged_by"]) == (None, None, None)
    assert shown["opened_at"].endswith("Z")
    assert shown["notified_at"].endswith("Z")
    assert customer.get(f"/api/v1/orders/{public_id}/").json()["incident"] == row.pk
    assert customer.get("/api/v1/orders/").json()["results"][0]["incident"] == row.pk


def test_an_incident_is_acknowledged_with_a_reason_and_stays_open(operator, stands):
    _public_id, row = stands

    answer = operator.post(f"{INCIDENTS}{row.pk}/acknowledge/", {"reason": "the warehouse is looking"})
    again = operator.post(f"{INCIDENTS}{row.pk}/acknowledge/", {"reason": "again"})

    assert (answer.status_code, answer.json()["acknowledged_by"], answer.json()["closed_at"]) == (200, "olga", None)
    assert again.json()["acknowledge_reason"] == "the warehouse is looking"
    assert len(operator.get(INCIDENTS, {"open": "true"}).json()["results"]) == 1


@pytest.mark.parametrize("body", [{}, {"reason": ""}, {"reason": "r", "odd": 1}])
def test_a_mistake_in_an_acknowledgement_is_named(operator, stands, body):
    _public_id, row = stands

    assert operator.post(f"{INCIDENTS}{row.pk}/acknowledge/", body).status_code == 400
    assert Incident.objects.get().acknowledged_at is None


def test_what_is_over_is_listed_apart_and_holds_nothing(operator, stands):
    public_id, row = stands
    operator.post(f"/api/v1/orders/{public_id}/skip/", {"reason": "set aside by hand"})
    lifecycle.look()

    assert operator.get(INCIDENTS, {"open": "true"}).json()["results"] == []
    (over,) = operator.get(INCIDENTS, {"open": "false"}).json()["results"]
    assert (over["id"], over["orders"]) == (row.pk, 0)
    shown = operator.get(f"{INCIDENTS}{row.pk}/").json()
    assert (shown["held"], shown["order_ids"], shown["closed_at"] is None) == ([], [], False)
    assert operator.get(f"/api/v1/orders/{public_id}/").json()["incident"] is None


def test_an_order_that_waits_to_be_taken_up_names_the_incident_of_that(customer):
    public_id = customer.post("/api/v1/orders/", a_request()).json()["id"]
    address = f"/api/v1/orders/{public_id}/"
    assert customer.get(address).json()["incident"] is None
    row = Incident.objects.create(kind="starvation", cause="starvation:submissions")

    assert customer.get(address).json()["incident"] == row.pk


@pytest.mark.parametrize("query", [{"open": "maybe"}, {"odd": "1"}, {"cursor": "x"}])
def test_a_mistyped_query_is_refused(viewer, query):
    assert viewer.get(INCIDENTS, query).status_code == 400


def test_an_incident_nobody_knows_is_not_found(operator):
    assert operator.get(f"{INCIDENTS}424242/").status_code == 404
    assert operator.post(f"{INCIDENTS}424242/acknowledge/", {"reason": "r"}).status_code == 404
    assert operator.get(INCIDENTS, {"kind": "\0"}).json()["results"] == []


def test_the_metrics_count_the_open_ones_by_kind_and_severity(client, stands):
    assert 'sas_incidents_open{kind="step_error",severity="warning"} 1.0' in client.get("/metrics").content.decode()
