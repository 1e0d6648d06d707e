"""Placing orders through the service that API, storefront and commands use."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest

from orders.models import Product
from orders.progress import standing
from orders.queries import order_view
from orders.services import Conflict, InvalidOrder, Item, KeyReused, NotAllowed, Placed, cancel_order, place_order, place_orders
from supervision.errors import Refused, UnknownRun
from supervision.intake.consuming import consume_batch
from supervision.intake.submission import NewSubmission, accept, new_public_id
from supervision.models import DeadLetter, Run, StepState, Submission
from supervision.wakeup import hints
from tests.shopping import a_product, a_request, an_account

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def mug(monkeypatch):
    """The blue mug; no hints are sent."""
    monkeypatch.setattr(hints, "enabled", False)
    return a_product()


def test_a_guest_places_an_order_and_finds_it_by_its_id():
    placed = place_order(a_request(), account=None)

    view = order_view(placed.public_id)
    assert (view.process_state, view.total, view.account_id, view.run_id) == ("Pending", Decimal("25.80"), None, None)
    assert [(line.sku, line.quantity, line.unit_price) for line in view.lines] == [("MUG-BLUE", 2, Decimal("12.90"))]
    assert view.may_cancel
    assert standing(view).headline == "We have your order"


def test_the_submission_keeps_what_the_run_will_need():
    account = an_account("ada", "customer")

    placed = place_order(a_request(session_key="s", priority="low"), account=account, idempotency_key="k")

    submission = Submission.objects.get(public_id=placed.public_id)
    assert (submission.client, submission.client_key) == (f"user:{account.pk}", "k")
    assert json.loads(submission.payload) == {
        "email": "ada@example.com",
        "shipping_address": a_request()["shipping_address"],
        "lines": [{"sku": "MUG-BLUE", "name": "Product MUG-BLUE", "quantity": 2, "unit_price": "12.90"}],
        "payment_method": "pm_card_visa",
        "priority": "low",
        "session_key": "s",
        "reply_to": None,
        "total": "25.80",
        "currency": "EUR",
        "account": account.pk,
    }


def test_nothing_is_written_when_a_request_is_refused():
    Product.objects.filter(sku="MUG-BLUE").update(available=1)

    for changes, error in (
        ({"lines": []}, InvalidOrder),
        ({"expected_total": "1.00"}, Conflict),
        ({}, Conflict),
        ({"priority": "high"}, NotAllowed),
    ):
        with pytest.raises(error):
            place_order(a_request(**changes), account=None)

    assert not Submission.objects.exists()


def test_a_changed_price_is_told_before_missing_stock():
    Product.objects.filter(sku="MUG-BLUE").update(available=0)

    with pytest.raises(Conflict) as told:
        place_order(a_request(expected_total="1.00"), account=None)

    assert (told.value.code, told.value.facts) == ("price_changed", {"total": "25.80", "currency": "EUR"})


@pytest.mark.parametrize(("price", "quantity"), [("0.00", 1), ("99999999.99", 1), ("2000.00", 999)])
def test_a_total_out_of_all_proportion_is_refused(price, quantity):
    a_product("ODD", price=price, available=10_000)

    with pytest.raises(InvalidOrder) as told:
        place_order(a_request(lines=[{"sku": "ODD", "quantity": quantity}]), account=None)

    assert "lines" in told.value.errors


def test_one_order_has_one_currency():
    a_product("DOLLAR", currency="USD")

    with pytest.raises(InvalidOrder) as told:
        place_order(a_request(lines=[{"sku": "MUG-BLUE", "quantity": 1}, {"sku": "DOLLAR", "quantity": 1}]), account=None)

    assert list(told.value.errors["lines"]) == [1]


def test_many_orders_are_judged_one_by_one_and_committed_together():
    items = [
        Item(data=a_request()),
        Item(data=a_request(email="x")),
        Item(data=a_request(), idempotency_key="k"),
        Item(data=a_request(email="other@example.com"), idempotency_key="k"),
        Item(data=a_request(expected_total="1.00")),
    ]

    outcomes = place_orders(items, account=None)

    assert [type(outcome) for outcome in outcomes] == [Placed, InvalidOrder, Placed, KeyReused, Conflict]
    assert Submission.objects.count() == 2


def test_public_ids_are_unguessable_and_in_no_order():
    ids = [new_public_id() for _ in range(1000)]

    assert len(set(ids)) == 1000
    assert {len(public_id) for public_id in ids} == {22}
    assert ids != sorted(ids)


def test_cancelling_an_order_that_waits_is_remembered():
    placed = place_order(a_request(), account=None)

    cancel_order(placed.public_id, by="customer", reason="changed my mind")

    view = order_view(placed.public_id)
    assert (view.process_state, view.may_cancel) == ("Pending", False)
    assert standing(view).headline == "We are cancelling your order"
    consume_batch(born=False)
    assert order_view(placed.public_id).process_state == "Cancelled"
    with pytest.raises(Refused):
        cancel_order(placed.public_id, by="customer", reason="again")
    with pytest.raises(UnknownRun):
        cancel_order("no-such-order", by="customer", reason="x")


def test_an_order_that_was_undone_for_want_of_stock_says_so():
    placed = place_order(a_request(), account=None)
    consume_batch(born=False)
    StepState.objects.filter(position=0).update(process_state="Error", last_error="only 1 left")
    Run.objects.update(process_state="Compensating", direction="undo")

    assert standing(order_view(placed.public_id)).headline == "Something you ordered is sold out"


def test_an_order_in_error_promises_that_somebody_looks():
    placed = place_order(a_request(), account=None)
    consume_batch(born=False)
    Run.objects.update(process_state="Error")

    view = order_view(placed.public_id)
    assert standing(view).headline == "We are looking into it"
    assert view.may_cancel


def test_a_submission_that_became_a_dead_letter_is_still_an_order_to_its_customer():
    placed = place_order(a_request(), account=None)
    Submission.objects.update(payload=Submission.objects.get().payload.replace('"priority":"normal"', '"priority":"urgent"'))
    consume_batch(born=False)

    assert DeadLetter.objects.get().public_id == placed.public_id
    assert standing(order_view(placed.public_id)).headline == "We are looking into it"


def test_what_never_was_an_order_is_unknown():
    accept([NewSubmission(public_id=new_public_id(), workflow="fulfil-order", payload="junk")])

    assert order_view(Submission.objects.get().public_id) is None
    assert order_view("no-such-order") is None
