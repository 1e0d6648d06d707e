"""Amounts that are reserved, captured and released, compared with our books: what is still reserved for an ended order is found."""

from __future__ import annotations

import pytest

from orders.gateways import payment
from orders.payments import codes
from supervision import testing
from supervision.ledger import reconciliation
from supervision.models import Effect
from supervision.operations import operator_verbs
from tests.engine import kit
from tests.reconciliation.conftest import rest
from tests.reconciliation.test_charges import NOWHERE, TOTAL, facts
from tests.reconciliation.test_charges import charge as stray_charge

pytestmark = pytest.mark.usefixtures("budget")
AFTER = {"capture": codes.AFTER_BOOKING}


def reserve(order: str, name: str = "stray") -> str:
    """Reserve an amount that is not in our books."""
    key = f"{order}:{name}"
    made = payment.create(amount=2580, currency="EUR", order=order, step_key=key, key=f"{key}:create", reserve=True)
    payment.confirm(made.id, payment_method="pm_card_visa", key=f"{key}:confirm")
    return made.id


def released(buy) -> str:
    """An order that was cancelled while its amount was reserved."""
    order = buy("Error", shipping_address=NOWHERE, **AFTER)
    operator_verbs.cancel(order, by="olga", reason="the customer called")
    rest(order, "Cancelled")
    return order


def settle(finding, verb: str) -> str:
    return reconciliation.settle(finding.pk, verb, by="olga", reason="seen")


def test_captured_released_and_reserved_orders_agree_with_the_services_list(buy, found):
    done, under_way = buy(**AFTER), buy("Error", shipping_address=NOWHERE, **AFTER)
    undone = released(buy)

    assert found(done, under_way, undone) == []


def test_an_amount_still_reserved_for_a_cancelled_order_is_found_and_released(buy, found):
    order = released(buy)
    left = reserve(order)

    [finding] = found(order)

    assert facts([finding]) == [("live_after_cancel", left, TOTAL, ("cancel",))]
    settle(finding, "cancel")
    assert payment.get(left).status == "canceled"
    assert found(order) == []


def test_an_amount_still_reserved_for_a_fulfilled_order_is_found_and_released(buy, found):
    order = buy(**AFTER)
    left = reserve(order)

    [finding] = found(order)

    assert facts([finding]) == [("open_payment", left, TOTAL, ("cancel",))]
    settle(finding, "cancel")
    assert found(order) == []
    assert payment.get(testing.step(order, codes.CAPTURE).result["intent"]).status == "succeeded"


def test_an_order_whose_capture_was_skipped_has_no_charge_and_a_reserved_amount(buy, found):
    order = buy("Error", shipping_address=NOWHERE, **AFTER)
    for step in ("book-shipment", codes.CAPTURE):
        kit.fetch(
            "UPDATE supervision_stepstate SET process_state = 'Skipped' WHERE name = %s AND run_id ="
            " (SELECT id FROM supervision_run WHERE key = %s)",
            [step, order],
        )
    kit.fetch("UPDATE supervision_run SET process_state = 'Processed', finished_at = now() WHERE key = %s", [order])

    assert {row.kind for row in found(order)} == {"open_payment", "missing_charge"}


def test_an_amount_that_was_reserved_before_the_list_begins_is_found_once_its_order_has_ended(buy, found, monkeypatch):
    order = released(buy)
    left = reserve(order)
    kit.fetch("UPDATE supervision_run SET created_at = created_at - interval '9 days' WHERE key = %s", [order])
    monkeypatch.setattr(payment, "listed", lambda since: iter(()))  # the amount was reserved before the list begins
    kit.fetch(
        "UPDATE supervision_stepstate SET checkpoint = jsonb_build_object('intent', %s::text)"
        " WHERE name = %s AND direction = 'do' AND run_id = (SELECT id FROM supervision_run WHERE key = %s)",
        [left, codes.AUTHORISE, order],
    )

    assert [(row.kind, row.external_id) for row in found(order)] == [("live_after_cancel", left)]


def test_a_capture_that_our_books_lost_is_adopted_into_them(buy, found):
    order = buy("Error", shipping_address=NOWHERE, **AFTER)
    operator_verbs.compensate(order, by="olga", reason="it can not be delivered")
    rest(order, "Cancelled")
    late = stray_charge(order)

    [finding] = found(order)

    assert facts([finding]) == [("live_after_cancel", late, TOTAL, ("refund",))]
    settle(finding, "refund")
    assert found(order) == []
    assert Effect.objects.filter(run__key=order, operation="refund").count() == 1
