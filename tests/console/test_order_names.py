"""The console's pages and lists call an order by its number, as the order's own page and its customer do."""

from __future__ import annotations

import json
import re

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from orders.models import Order
from supervision.incidents import lifecycle
from supervision.jobs import steering
from supervision.models import Alert, ApiRequest, Delivery, Incident, WebhookEndpoint
from supervision.operations import pauses
from tests.support.console import fail

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("no_hints")]
ALERTS = "/admin/supervision/alert/"
DELIVERIES, REQUESTS = "/admin/supervision/delivery/", "/admin/supervision/apirequest/"


def text(client: Client, address: str) -> str:
    """What a person reads on this page."""
    html = client.get(address).content.decode()
    body = re.sub(r"<script.*?</script>", "", html, flags=re.DOTALL)
    return re.sub(r"<[^>]*>", " ", body)


def named(page: str, orders: list[Order]) -> bool:
    """Whether a person reads the numbers of all these orders, and the public id of none."""
    return all(str(order.number) in page and order.public_id not in page for order in orders)


def test_each_place_that_lists_orders_calls_them_by_their_numbers(operator: Client):
    orders = fail(2)
    lifecycle.look()
    job = steering.start("resubmit", {"error_code": "refused"}, by="command (olga)", reason="the bank is back")
    pauses.pause("order", orders[0].public_id, reason="the customer calls back", by="olga")

    assert named(text(operator, "/admin/"), orders)
    assert named(text(operator, f"{ALERTS}?open=yes"), orders)
    assert named(text(operator, reverse("admin:supervision_incident_change", args=[Incident.objects.get().pk])), orders)
    assert named(text(operator, f"/admin/supervision/job/{job.pk}/change/?outcome=waiting"), orders)
    assert named(text(operator, "/admin/supervision/pause/?active=yes"), orders[:1])


def test_the_open_alerts_are_those_that_wait_for_an_operator(operator: Client):
    refused, failed = fail(for_customer=True) + fail()

    assert named(opened := text(operator, f"{ALERTS}?open=yes"), [failed])
    assert str(refused.number) not in opened
    assert named(waiting := text(operator, f"{ALERTS}?open=customers"), [refused])
    assert str(failed.number) not in waiting


def test_the_list_of_open_alerts_has_as_many_as_the_landing_page_counts(operator: Client):
    open_one, seen, over, refused = fail(3) + fail(for_customer=True)
    Alert.objects.filter(run=seen.run).update(acknowledged_at=timezone.now(), acknowledged_by="olga")
    Alert.objects.filter(run=over.run).update(closed_at=timezone.now())

    listed = {state: operator.get(ALERTS, {"open": state}).context["cl"].result_list for state in ("yes", "seen", "customers", "no")}

    assert {state: [row.run_id for row in rows] for state, rows in listed.items()} == {
        "yes": [open_one.run_id], "seen": [seen.run_id], "customers": [refused.run_id], "no": [over.run_id],
    }  # fmt: skip
    assert re.search(r"\b1\s+open alerts", text(operator, "/admin/"))
    assert "the landing page counts them" in text(operator, f"{ALERTS}?open=yes")
    assert "the landing page counts them" not in text(operator, f"{ALERTS}?open=seen")


def test_deliveries_and_api_requests_call_orders_by_their_numbers(operator: Client):
    (order,) = fail()
    body = json.dumps({"data": {"order": order.public_id}})
    hook = WebhookEndpoint.objects.create(client="user:1", url="https://shop.example/hook", secret="s")
    fields = {"endpoint": hook, "client": "user:1", "event": "order.failed", "seq": 1, "not_before": timezone.now()}
    sent = Delivery.objects.create(public_id="dlv_1", message_id="m-1", run_id=order.run_id, body=body, **fields)
    Delivery.objects.create(public_id="dlv_2", message_id="m-2", body=json.dumps({"data": {"order": None}}), **fields)
    path = f"/api/v1/orders/{order.public_id}/cancel/"
    ApiRequest.objects.create(request_id="r-1", method="POST", path=path, status=200, kind=2, milliseconds=1, order_key=order.public_id)

    for address in (DELIVERIES, REQUESTS, reverse("admin:supervision_delivery_change", args=[sent.pk])):
        page = text(operator, address)
        shown = page.replace(order.public_id, "", page.count(body)) if "dlv_1" in page else page  # its page shows what is sent
        assert str(order.number) in shown, address
    assert named(text(operator, DELIVERIES), [order])
    assert named(text(operator, REQUESTS), [order])
    assert "POST /api/v1/orders/…/cancel/" in text(operator, REQUESTS)
    assert "none: a test" in text(operator, DELIVERIES)
    for address in (DELIVERIES, REQUESTS):
        for said in (order.number, order.public_id):
            assert len(operator.get(address, {"q": said}).context["cl"].result_list) == 1, (address, said)
        assert len(operator.get(address, {"q": "no-such-order"}).context["cl"].result_list) == 0


def test_an_incident_has_each_way_out_once_and_a_link_to_the_orders_it_does_not_name(operator: Client, monkeypatch):
    monkeypatch.setattr("supervision.admin.incident_pages.ORDERS_SHOWN", 1)
    fail(3, for_customer=True)
    lifecycle.look()
    row = Incident.objects.get()

    html = operator.get(reverse("admin:supervision_incident_change", args=[row.pk])).content.decode()

    assert html.count(">List its orders<") == 1
    assert f'href="/admin/orders/order/?incident={row.pk}">and 2 more</a>' in html


@pytest.mark.parametrize(
    ("address", "meaning"),
    [
        ("/admin/supervision/approval/?state=pending", "no verb waits for a second operator"),
        ("/admin/supervision/channel/", "by the mails to OPERATOR_EMAILS alone"),
        ("/admin/supervision/resourceroute/", "use the resource of the same name"),
    ],
)
def test_an_empty_list_says_what_that_means(operator: Client, address: str, meaning: str):
    assert meaning in text(operator, address)
