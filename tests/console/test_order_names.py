"""The console's pages and lists call an order by its number, as the order's own page and its customer do."""

from __future__ import annotations

import re

import pytest
from django.test import Client
from django.urls import reverse

from orders.models import Order
from supervision.incidents import lifecycle
from supervision.jobs import steering
from supervision.models import Incident
from supervision.operations import pauses
from tests.support.console import fail

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("no_hints")]
ALERTS = "/admin/supervision/alert/"


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
