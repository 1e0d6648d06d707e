"""Operators' view of orders: a list with the orders that need an operator at the top, and a page with every detail."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from orders.models import Order
from supervision import testing
from supervision.console.lists.found_rows import ErrorFirst
from supervision.models import Alert, Run, StepState
from supervision.operations import operator_verbs
from tests.support.console import ATTACK, ATTACKS, ORDERS, fail, page, place, verb

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("no_hints")]


def numbers(client: Client, query: str = "") -> list[str]:
    """The order numbers of the list, from top to bottom."""
    return re.findall(r"\b\d{3}-\d{3}-\d{3}(?:-\d)?\b(?=</a>)", client.get(ORDERS + query).content.decode())


def test_the_list_shows_orders_in_error_first_then_the_newest(operator: Client):
    (failed,) = fail()
    older, newer = place(2)

    assert numbers(operator) == [failed.number, newer.number, older.number]


def test_the_list_names_state_step_attempts_and_error(operator: Client):
    fail(message="card_declined: the card was refused")

    html = operator.get(ORDERS).content.decode()

    for words in ("Error", "charge-payment", "ada@example.com", "25.80 EUR", "card_declined: the card was refused"):
        assert words in html


def test_the_list_asks_the_database_as_often_for_many_rows_as_for_few(operator: Client):
    asked = []
    for more in (5, 45):
        fail(more)
        place(more)
        operator.get(ORDERS)
        with CaptureQueriesContext(connection) as queries:
            assert operator.get(ORDERS).status_code == 200
        asked.append(len(queries))
        assert not any("COUNT(*)" in query["sql"] and "LIMIT" not in query["sql"] for query in queries)

    assert asked[0] <= 16
    assert asked[1] - asked[0] <= 1  # with a second page the list counts its two parts


def test_the_second_page_goes_on_where_the_first_ended():
    errors, others = fail(7), place(8)
    expected = [order.pk for order in reversed(errors)] + [order.pk for order in reversed(others)]

    rows = ErrorFirst(Order.objects.all(), "run__process_state", ("-created_at", "-id"))

    assert rows.count() == 15
    assert [order.pk for start in range(0, 15, 4) for order in rows[start : start + 4]] == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("?process_state=Error", {"failed"}),
        ("?process_state=Processing", {"waiting"}),
        ("?process_state=nonsense", set()),
        ("?step=charge-payment", {"failed"}),
        ("?step=book-shipment", set()),
        ("?age=1h", {"failed"}),
        ("?age=1d", set()),
        ("?alert=yes", {"failed"}),
        ("?at=stock.waiting", {"waiting"}),
        ("?at=overdue", set()),
        ("?q=grace@", {"failed"}),
        ("?q=GRACE@EXAMPLE.COM", {"failed"}),
        ("?q=no-such-order", set()),
    ],
)
def test_the_list_is_narrowed_by_state_step_age_alert_place_and_search(operator: Client, query: str, expected: set[str]):
    (failed,), (waiting,) = fail(email="grace@example.com"), place()
    Run.objects.filter(pk=failed.run_id).update(created_at="2026-01-01T00:00Z" if "1d" not in query else failed.run.created_at)
    names = {failed.number: "failed", waiting.number: "waiting"}

    assert {names[number] for number in numbers(operator, query)} == expected


def test_an_order_is_found_by_its_number_with_or_without_dashes_and_by_its_public_id(operator: Client):
    wanted, _other = place(2)

    for term in (wanted.number, wanted.number.replace("-", ""), wanted.number.replace("-", " "), wanted.public_id):
        assert numbers(operator, f"?q={term}") == [wanted.number]


def test_the_page_shows_facts_lines_steps_and_the_history_in_order(operator: Client):
    (order,) = fail(message="card_declined: the card was refused")

    html = operator.get(page(order)).content.decode()

    step = testing.step(order.public_id, "charge-payment")
    for words in (
        order.number,
        order.public_id,
        "ada@example.com",
        "Via Roma 1",
        "Blue mug",
        "25.80 EUR",
        step.idempotency_key,
        "pm_card_visa",
    ):
        assert words in html
    history = html[html.index('class="sc-timeline"') :]
    assert history.index("reserve-stock") < history.index("charge-payment") < history.index("card_declined")
    assert "waits for an operator" in html


def test_the_page_shows_late_replies_and_what_operators_did(operator: Client):
    (order,) = fail()
    order.run.stray_replies.create(direction="do", position=1, attempt=1, outcome="processed", detail="came late", actor="agents@b")
    operator_verbs.resubmit(order.public_id, by="olga", reason="the bank says it works again")

    html = operator.get(page(order)).content.decode()

    assert "late reply, not applied" in html
    assert "came late" in html
    assert "the bank says it works again" in html


def test_everything_others_wrote_is_text_on_the_list_and_on_the_page(operator: Client):
    (order,) = fail(message=ATTACK)
    order.run.stray_replies.create(direction="do", position=1, attempt=1, outcome="processed", detail=ATTACK, actor="agents")
    order.lines.update(name=ATTACK[:200])
    payload = {**order.run.payload, "payment_method": ATTACK, "shipping_address": {"name": ATTACK}}
    Run.objects.filter(pk=order.run_id).update(payload=payload)
    StepState.objects.filter(run=order.run, position=0).update(result={"id": ATTACK}, checkpoint={"note": ATTACK})

    for address in (
        ORDERS,
        page(order),
        verb(order, "resubmit"),
        "/admin/supervision/run/",
        f"/admin/supervision/run/{order.run_id}/change/",
    ):
        html = operator.get(address).content.decode()
        for attack in ATTACKS[:3]:
            assert attack not in html, address
        assert "{{ 7|add:7 }}" in html or address.endswith(("/order/", "/run/"))  # lists truncate long texts
        assert "&lt;script&gt;window.pwned=1" in html, address


def test_nobody_adds_changes_or_deletes_an_order_here(client: Client, admin_user: Any):
    (order,) = fail()
    client.force_login(admin_user)

    assert client.get(f"{ORDERS}add/").status_code == 403
    assert client.post(page(order), {"email": "x@example.com"}).status_code == 405
    assert client.post(f"{ORDERS}{order.pk}/delete/", {"post": "yes"}).status_code == 403
    assert Order.objects.get().email == "ada@example.com"


def test_an_alert_leads_to_the_orders_page(operator: Client):
    (order,) = fail()
    alert = Alert.objects.get()

    html = operator.get("/admin/supervision/alert/").content.decode()

    link = reverse("admin:orders_order_of_run", args=[alert.run_id])
    assert link in html
    assert operator.get(link)["Location"] == page(order)
