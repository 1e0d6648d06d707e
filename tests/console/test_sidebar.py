"""The console's side bar, which keeps daily work, supervision and machinery apart; and lists that say what their emptiness means."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.test import Client, RequestFactory
from django.urls import reverse
from django.utils import timezone

from orders.admin import navigation
from orders.models import Order, Return
from supervision.console import sidebar
from supervision.incidents import lifecycle
from supervision.models import Alert, Notification
from tests.support.console import fail

pytestmark = pytest.mark.django_db


@pytest.fixture
def everything(operator: Client) -> Client:
    """The operator, who for once may see every list."""
    User.objects.get(username="olga").user_permissions.set(Permission.objects.all())
    return operator


def groups(client: Client, builder: object = navigation) -> dict[str, list[str]]:
    request = RequestFactory().get("/admin/")
    request.user = User.objects.get(pk=client.session["_auth_user_id"])
    return {str(group["title"]): [str(item["title"]) for item in group["items"]] for group in builder(request)}  # type: ignore[operator]


def test_daily_work_supervision_and_machinery_are_apart(operator: Client, viewer: Client):
    shown = groups(operator)

    assert list(shown) == ["Daily work", "Supervision", "Machinery", "People"]
    daily = ["Incidents", "Orders", "Returns", "Payment events", "Jobs", "Approvals", "Dead letters", "Products", "Categories"]
    assert shown["Daily work"] == daily
    assert shown["Supervision"][:5] == ["Breakers and capacity", "Pauses", "Queues", "Schedules", "Intervals"]
    assert {"Runs", "Heartbeats", "Journal files", "Deliveries", "Routes"} <= set(shown["Machinery"])
    assert shown["People"] == []
    assert "Schedules" not in groups(viewer)["Supervision"]


def test_an_entry_keeps_the_capitals_of_its_words(operator: Client):
    html = operator.get("/admin/").content.decode()

    assert "API requests" in html
    assert "Api requests" not in html


def test_where_no_application_has_entries_its_runs_are_the_daily_work(operator: Client):
    shown = groups(operator, sidebar.navigation)

    assert shown["Daily work"] == ["Incidents", "Runs", "Jobs", "Approvals", "Dead letters"]
    assert "Runs" not in shown["Machinery"]


def test_the_first_entry_counts_the_open_incidents(operator: Client):
    request = RequestFactory().get("/admin/")
    request.user = User.objects.get(username="olga")
    assert "badge" not in navigation(request)[0]["items"][0]

    fail(2)
    fail(for_customer=True, at="book-shipment")  # waits for its customer
    lifecycle.look()

    assert navigation(request)[0]["items"][0]["badge"] == "1"
    [alerts] = [item for group in navigation(request) for item in group["items"] if "/alert/" in item["link"]]
    assert alerts["badge"] == "2"


def test_the_orders_are_counted_that_an_operator_must_act_on(operator: Client):
    request = RequestFactory().get("/admin/")
    request.user = User.objects.get(username="olga")
    mine, seen, refund = fail(3)
    fail(for_customer=True)  # its customer can pay again
    Alert.objects.filter(run=seen.run).update(acknowledged_at=timezone.now())
    Order.objects.filter(pk=refund.pk).update(run_id=10**9)  # as the run of a refund is: the list has no row for it

    orders = {str(item["title"]): item.get("badge") for item in navigation(request)[0]["items"]}
    runs = {str(item["title"]): item.get("badge") for item in sidebar.navigation(request)[0]["items"]}

    assert orders["Orders"] == "1"
    assert runs["Runs"] == "2"
    Alert.objects.filter(run=mine.run).update(closed_at=timezone.now())
    assert "badge" not in next(item for item in navigation(request)[0]["items"] if item["title"] == "Orders")


def test_notifications_say_whether_they_are_due(operator: Client):
    tomorrow, past = timezone.now() + timedelta(days=1), timezone.now() - timedelta(hours=1)
    Notification.objects.create(kind="reminder", not_before=tomorrow)
    Notification.objects.create(kind="refused", not_before=past)
    Notification.objects.create(kind="lost", not_before=past, given_up_at=past)
    Notification.objects.create(kind="sent", not_before=past, delivered_at=past)

    shown = operator.get("/admin/supervision/notification/").context["cl"]

    states = {row.kind: str(shown.model_admin.standing(row)[1]) for row in shown.result_list}
    assert states == {"reminder": "waits for its time", "refused": "due", "lost": "given up", "sent": "delivered"}


def test_every_list_says_what_it_means_that_it_is_empty(everything: Client):
    for model in admin.site._registry:
        address = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
        for query in ("", "?q=of-no-row"):
            html = everything.get(address + query).content.decode()
            assert "yielded" not in html, address + query
            if "sc-empty-list" in html:
                assert "Show all" in html or not query, address + query


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("/admin/supervision/deadletter/?open=yes", "No dead letter: every message that arrived could be read."),
        ("/admin/supervision/deadletter/?open=no", "No entry matches these filters."),
        ("/admin/orders/order/", "No order has been placed yet."),
        ("/admin/orders/order/?q=111-222-333", "No entry matches the search."),
        ("/admin/supervision/delivery/?state=failing", "No delivery: no message to a client waits or fails."),
    ],
)
def test_an_empty_list_speaks_of_what_was_asked(operator: Client, address: str, words: str):
    html = operator.get(address).content.decode()

    assert words in html
    assert ("Show all" in html) == ("?" in address)


def test_returns_are_listed_with_the_state_of_their_run(operator: Client, client: Client):
    (order,) = fail()
    row = Return.objects.create(
        public_id=order.public_id, order_key="o-1", number="R-1", reason="too small", asked_by="ada", currency="EUR"
    )
    Return.objects.create(public_id="not-taken-up", order_key="o-2", number="R-2", reason="broken", asked_by="ada", currency="EUR")

    html = operator.get("/admin/orders/return/").content.decode()

    assert html.index("R-2") < html.index("R-1")
    assert re.search(rf'href="[^"]*of-run/{order.run_id}/"[^>]*>R-1<', html)
    assert "Error" in html
    Return.objects.filter(number="R-2").update(order_key=order.public_id)
    for said, found in (("o-1", ["R-1"]), ("R-2", ["R-2"]), (order.number, ["R-2"]), (order.public_id, ["R-2"]), ("R-9", [])):
        shown = operator.get("/admin/orders/return/", {"q": said}).context["cl"].result_list
        assert [one.number for one in shown] == found, said
    assert row.order_key == "o-1"
    assert Order.objects.count() == 1


def test_an_account_that_sees_no_orders_sees_no_returns(client: Client):
    client.force_login(User.objects.create_user("stan", is_staff=True))

    assert client.get("/admin/orders/return/").status_code == 403
