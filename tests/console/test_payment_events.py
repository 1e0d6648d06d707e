"""The console's list of payment events: newest first, filtered, each with its order, and those of unknown orders with a way out."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from orders.models import PaymentEvent
from orders.payments import console
from tests.support.console import fail

pytestmark = pytest.mark.django_db
LIST = "/admin/orders/paymentevent/"
SUCCEEDED, REFUNDED = "payment_intent.succeeded", "charge.refund.updated"


def told(name: str, order: str = "", kind: str = SUCCEEDED, outcome: str = "nothing waits for it") -> PaymentEvent:
    return PaymentEvent.objects.create(
        event_id=f"evt_{name}", kind=kind, intent=f"pi_{name}", order_key=order, outcome=outcome, applied_at=timezone.now()
    )


def shown(client: Client, query: str = "") -> list[str]:
    """The names of the events that the list shows, in its order."""
    html = client.get(LIST + query).content.decode()
    return re.findall(r"\bevt_(\w+)", html)


def test_the_newest_is_first_and_leads_to_its_order(operator: Client):
    (order,) = fail()
    told("old", order.public_id)
    told("new", order.public_id, REFUNDED, "1 recorded")

    html = operator.get(LIST).content.decode()

    assert shown(operator) == ["new", "old"]
    assert len(re.findall(rf'href="[^"]*of-run/{order.run_id}/"[^>]*>{order.number}<', html)) == 2
    assert "1 recorded" in html


def test_what_became_of_an_event_is_told_in_the_readers_language(operator: Client):
    told("read", outcome="1 recorded")
    told("unread")

    html = operator.get(LIST, headers={"accept-language": "it"}).content.decode()

    assert "1 registrati" in html
    assert "nothing waits for it" not in html


def test_it_is_filtered_by_kind_and_by_order(operator: Client):
    (order,) = fail()
    told("ours", order.public_id)
    told("refund", order.public_id, REFUNDED)
    told("foreign", "of-another-shop")
    told("nameless")

    assert shown(operator, f"?kind={REFUNDED}") == ["refund"]
    assert shown(operator, "?order=known") == ["refund", "ours"]
    assert shown(operator, "?order=unmatched") == ["nameless", "foreign"]
    assert shown(operator, "?order=nonsense") == ["nameless", "foreign", "refund", "ours"]
    for term in (order.public_id, order.number):
        assert shown(operator, f"?q={term}") == ["refund", "ours"]
    assert shown(operator, "?q=pi_ours") == ["ours"]
    assert shown(operator, "?q=evt_foreign")[-1] == "foreign"
    assert shown(operator, "?q=999-999-999") == []


def test_those_of_unknown_orders_say_what_can_be_done(operator: Client):
    told("foreign", "of-another-shop")
    told("nameless", outcome="not a payment of this shop")
    PaymentEvent.objects.create(event_id="evt_waits", kind=REFUNDED, intent="pi_1")

    html = operator.get(LIST).content.decode()

    assert "unknown: of-another-shop" in html
    assert "manage.py reconcile --service payment" in html
    assert "not a payment of this shop" in html
    assert "the outbox tries again" in html


def test_what_an_event_says_is_never_markup(operator: Client):
    told("x", "<script>alert(1)</script>")

    assert "<script>alert(1)" not in operator.get(LIST).content.decode()


def test_nothing_can_be_changed(operator: Client):
    row = told("x")
    page = f"{LIST}{row.pk}/change/"

    assert operator.post(page, {"outcome": "changed"}).status_code == 403
    assert operator.get(f"{LIST}add/").status_code == 403
    assert operator.post(f"{LIST}{row.pk}/delete/", {"post": "yes"}).status_code == 403
    row.refresh_from_db()
    assert row.outcome == "nothing waits for it"


def test_who_sees_no_orders_sees_no_events(client: Client, viewer: Client):
    assert viewer.get(LIST).status_code == 200
    client.force_login(User.objects.create_user("stan", is_staff=True))

    assert client.get(LIST).status_code == 403


def test_the_list_costs_the_same_for_many_events_and_the_filter_by_order_reads_only_the_newest(operator: Client, monkeypatch):
    def queries() -> int:
        with CaptureQueriesContext(connection) as seen:
            operator.get(f"{LIST}?order=unmatched")
        return len(seen)

    told("first")
    few = queries()
    for number in range(60):
        told(f"n{number}")

    assert queries() == few
    assert len(shown(operator)) == 50, "a page"
    monkeypatch.setattr(console, "NEWEST", 10)
    assert len(shown(operator, "?order=unmatched")) == 10
