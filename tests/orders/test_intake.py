"""The shop's intake: from a submission's text to a run and its order."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from django.core import mail
from hypothesis import given, settings
from hypothesis import strategies as st

from orders import intake, lifecycle
from orders.intake import order_number
from orders.models import Order, OrderLine
from supervision.errors import UnreadableSubmission
from supervision.models import Notification
from supervision.outbox.notifications import deliver_due
from supervision.workflow import AcceptedRun, ClosedRun, NewRun
from tests.shopping import ADDRESS, an_account

BODY = {
    "email": "ada@example.com",
    "shipping_address": ADDRESS,
    "lines": [
        {"sku": "MUG-BLUE", "name": "Blue mug", "quantity": 2, "unit_price": "12.90"},
        {"sku": "CUP", "name": "Cup", "quantity": 1, "unit_price": "3.00"},
    ],
    "payment_method": "pm_card_visa",
    "priority": "normal",
    "session_key": None,
    "reply_to": None,
    "total": "28.80",
    "currency": "EUR",
    "account": None,
}


def body(**changes: Any) -> str:
    return json.dumps({**BODY, **changes}, ensure_ascii=False)


def accepted(run_id: int, **changes: Any) -> AcceptedRun:
    return AcceptedRun(
        run_id=run_id, key=f"key-{run_id}", client="", submitted_at=datetime(2026, 11, 21, tzinfo=UTC), new=intake.read(body(**changes))
    )


def test_a_submission_becomes_the_agents_payload_and_the_engines_columns():
    run = intake.read(body(priority="high", session_key="s", account=7))

    assert (run.priority, run.session_key, run.reply_to) == (1, "s", None)
    assert run.payload == {name: BODY[name] for name in ("email", "lines", "total", "currency", "shipping_address", "payment_method")}
    assert run.facts.account == 7


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("", ""),
        ("junk", ""),
        ("[]", ""),
        ("null", ""),
        ("[" * 100_000, ""),
        (body(total=float("nan")), ""),
        (body(email=None), "email"),
        (body(email="x" * 255), "email"),
        (body(lines=[]), "lines"),
        (body(lines={"sku": 1}), "lines"),
        (body(lines=[5]), "lines[0]"),
        (body(lines=[BODY["lines"][0], {**BODY["lines"][0], "quantity": 1.5}]), "lines[1].quantity"),
        (body(lines=[{**BODY["lines"][0], "quantity": True}]), "lines[0].quantity"),
        (body(lines=[{**BODY["lines"][0], "quantity": 10**12}]), "lines[0].quantity"),
        (body(lines=[{**BODY["lines"][0], "unit_price": 12.9}]), "lines[0].unit_price"),
        (body(lines=[{**BODY["lines"][0], "unit_price": "1e9"}]), "lines[0].unit_price"),
        (body(lines=[{**BODY["lines"][0], "unit_price": "123456789.00"}]), "lines[0].unit_price"),
        (body(lines=[{**BODY["lines"][0], "sku": ""}]), "lines[0].sku"),
        (body(shipping_address="Torino"), "shipping_address"),
        (body(shipping_address={**ADDRESS, "city": 5}), "shipping_address.city"),
        (body(shipping_address={**ADDRESS, "line2": 5}), "shipping_address.line2"),
        (body(total="-1"), "total"),
        (body(currency="EURO"), "currency"),
        (body(priority="urgent"), "priority"),
        (body(priority=["high"]), "priority"),
        (body(session_key="x" * 201), "session_key"),
        (body(account="7"), "account"),
        (body(account=2**31), "account"),
        (body(payment_method=None), "payment_method"),
        (json.dumps({**BODY, "email": "a\x00b@example.com"}), "email"),
        (json.dumps({**BODY, "session_key": "\ud800"}), "the body"),
    ],
)
def test_what_cannot_become_an_order_is_refused_with_the_field_and_the_expectation(text, field):
    with pytest.raises(UnreadableSubmission) as told:
        intake.read(text)

    assert list(told.value.errors) == [field]
    assert "expected" in told.value.errors[field][0]


def test_a_backslash_that_only_looks_like_an_escape_is_text():
    assert intake.read(json.dumps({**BODY, "session_key": "\\u0000"})).session_key == "\\u0000"


_json: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["1.00", "EUR", "normal"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*BODY, *ADDRESS, "sku", "quantity", "unit_price"]), inner),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(
    text=st.text()
    | _json.map(json.dumps)
    | st.tuples(st.sampled_from(list(BODY)), _json).map(lambda pair: json.dumps({**BODY, pair[0]: pair[1]}))
)
def test_the_intake_reads_or_says_unreadable_and_never_trips(text):
    errors = {"": [""]}
    try:
        assert isinstance(intake.read(text), NewRun)
    except UnreadableSubmission as error:
        errors = error.errors
    assert errors


@pytest.mark.django_db
def test_orders_and_lines_of_a_batch_are_filed_in_one_statement(django_assert_num_queries):
    account = an_account("ada", "customer")
    runs = [accepted(1, account=account.pk), accepted(2, account=999_999), accepted(3, email="héloïse@example.com")]

    with django_assert_num_queries(1):
        intake.write(runs)

    orders = list(Order.objects.order_by("id"))
    assert [(order.run_id, order.public_id, order.account_id) for order in orders] == [
        (1, "key-1", account.pk),
        (2, "key-2", None),
        (3, "key-3", None),
    ]
    assert orders[2].email == "héloïse@example.com"
    assert str(orders[0].total) == "28.80"
    assert orders[0].created_at == runs[0].submitted_at
    lines = OrderLine.objects.filter(order=orders[0]).order_by("id")
    assert [(line.sku, line.quantity, str(line.unit_price)) for line in lines] == [("MUG-BLUE", 2, "12.90"), ("CUP", 1, "3.00")]
    assert OrderLine.objects.count() == 6


@pytest.mark.django_db
def test_filing_nothing_asks_nothing(django_assert_num_queries):
    with django_assert_num_queries(0):
        intake.write([])


def test_order_numbers_are_short_and_differ_and_tell_nothing_of_their_order():
    numbers = [order_number(submission) for submission in range(1, 50_001)]

    assert len(set(numbers)) == 50_000
    assert all(number.replace("-", "").isdigit() and len(number) <= 13 for number in numbers)
    assert numbers != sorted(numbers)


@pytest.mark.parametrize(
    ("changed", "good"),
    [({"email": "new@example.com"}, True), ({"payment_method": "pm_x"}, True), ({"email": "x"}, False), ({"total": "1"}, False)],
)
def test_a_correction_has_to_be_as_good_as_a_request(changed, good):
    if good:
        intake.check_amendment(changed)
    else:
        with pytest.raises(UnreadableSubmission, match=next(iter(changed))):
            intake.check_amendment(changed)


@pytest.mark.django_db(transaction=True)
def test_the_customer_is_told_of_a_cancellation_once_and_under_a_stable_id():
    intake.write([accepted(1)])
    lifecycle.tell_the_customer([ClosedRun(run_id=1, key="key-1", reason="stock", payload={"email": "ada@example.com"})])
    lifecycle.tell_the_customer([])

    assert deliver_due() == 1
    assert deliver_due() == 0

    (message,) = mail.outbox
    assert message.to == ["ada@example.com"]
    assert Order.objects.get().number in message.subject
    assert message.extra_headers["X-Order-ID"] == "key-1"
    assert message.extra_headers["Message-ID"].startswith("<key-1.order-cancelled@")
    assert Notification.objects.get().delivered_at is not None
