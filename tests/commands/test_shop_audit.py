"""The shop's part of `manage.py audit`: orders agree with their runs, stock agrees with its reservations."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

from orders import audit_checks
from orders.models import Order, Product, StockReservation
from supervision import testing
from supervision.audit import registry
from supervision.execution import runner
from supervision.operations import operator_verbs
from supervision.store import step_verbs
from tests.commands.conftest import Manage
from tests.shopping import place

pytestmark = pytest.mark.django_db

SHOP = {check.invariant: check for check in registry.checks() if "orders_" in check.violations}


@pytest.fixture
def healthy(mug: Product, manage: Manage) -> dict[str, str]:
    """One order with every step done, and one that was undone after its stock had been reserved."""
    keys = {"processed": place(), "cancelled": place(email="grace@example.com")}
    ((stock, claims),) = testing.schedule()
    spot, claims = runner.run(stock, claims)
    operator_verbs.cancel(keys["cancelled"], by="test", reason="no longer wanted")
    while claims:  # no agent calls payment, carrier or mail here: the test writes their answers itself
        done = [(started, {}) for started in step_verbs.start(spot, claims)]
        claims = step_verbs.finish_at(spot)(done).claims
        spot = spot.following
    testing.make_due()
    testing.run_until_idle()
    return keys


def break_it(statement: str, **params: Any) -> None:
    with connection.cursor() as cursor:
        for name in ("stock_is_never_oversold", "a_reservation_takes_something"):
            table = "orders_product" if name.startswith("stock") else "orders_stockreservation"
            cursor.execute(f"ALTER TABLE {table} DROP CONSTRAINT {name}")
        cursor.execute(statement, params)


A_RETURN = """
INSERT INTO orders_return (public_id, order_key, number, reason, asked_by, currency)
VALUES ({}, %(processed)s, '1-R1', 'too small', 'ada', 'EUR')
"""


A_DOCUMENT = """
INSERT INTO orders_document (kind, series, year, number, order_key, return_key, issued_at, currency, total, vat, body)
VALUES ('{0}', '{0}', 2026, 1, %(processed)s, '{1}', now(), 'EUR', {2}, 0, jsonb_build_object('lines', '{3}'::jsonb))
"""

# The order becomes one that was split, and its parcels are missing.
SPLIT_WITHOUT_PARCELS = """
WITH s AS (UPDATE supervision_stepstate SET agent = 'child' WHERE name = 'book-shipment' AND direction = 'do')
UPDATE supervision_run SET version = 101, payload = jsonb_set(payload, '{lines,0,warehouse}', '"greenhouse"')
 WHERE key = %(processed)s
"""

BREAKS = {
    "stock is never oversold": "UPDATE orders_product SET available = -1",
    "an order has its run, under the same public id": "UPDATE orders_order SET run_id = -1 WHERE public_id = %(processed)s",
    "a run of fulfil-order has its order": "UPDATE orders_order SET run_id = -1 WHERE public_id = %(processed)s",
    "an order's total is the sum of its lines": "UPDATE orders_order SET total = 1 WHERE public_id = %(processed)s",
    "a line belongs to an order": "UPDATE orders_orderline SET order_id = -1",
    "a Cancelled order holds no stock": "UPDATE orders_stockreservation SET released_at = NULL",
    "stock is reserved for the lines of an order and for nothing else": "UPDATE orders_stockreservation SET quantity = 9",
    "a Processed order that was split has a parcel for each warehouse": SPLIT_WITHOUT_PARCELS,
    "a Processed order has its stock": "UPDATE orders_stockreservation SET released_at = now()",
    "the numbers of a series of documents have no gap": "INSERT INTO orders_documentcounter (series, year, last) VALUES ('INV', 2026, 3)",
    "the credit notes of an order take back no more than its invoice": "INSERT INTO orders_document"
    " (kind, series, year, number, order_key, return_key, issued_at, currency, total, vat, body)"
    " VALUES ('credit_note', 'CRN', 2026, 1, %(processed)s, 'r1', now(), 'EUR', 1, 0, '{}')",
    "a document has the sums of its lines": A_DOCUMENT.format("credit_note", "r1", 1, "[]"),
    "credit notes take from each rate of VAT no more than the invoice has of it, and the VAT of the rate": ";".join(
        [
            A_DOCUMENT.format("invoice", "", 10, '[{"rate": "10", "amount": "10", "vat": "0.91"}]'),
            A_DOCUMENT.format("credit_note", "r1", 10, '[{"rate": "22", "amount": "10", "vat": "1.80"}]'),
        ]
    ),
    "a refund that paid has one credit note of what it paid, unless less or nothing was left of the invoice": ";".join(
        [
            A_DOCUMENT.format("invoice", "", 10, "[]"),
            "INSERT INTO orders_refund (public_id, order_key, number, amount, currency, reason, asked_by)"
            " VALUES (%(processed)s, %(processed)s, 'R', 5, 'EUR', '', '')",
            "UPDATE supervision_stepstate SET name = 'refund-part', result = '{\"refunded\": \"5.00\"}' WHERE name = 'charge-payment'",
        ]
    ),
    "no order was paid out more at the bank than has come for it": "INSERT INTO orders_paymentadjustment"
    " (external_id, kind, intent, order_key, amount, currency, status, gives_back, rank, reason)"
    " VALUES ('payout:r1', 'refund', 'bank_transfer', %(processed)s, 99999, 'EUR', 'succeeded', true, 1, '')",
    "a payout at the bank that is in the ledger is recorded for its order with the same amount": ";".join(
        [
            "INSERT INTO supervision_effect"
            " (run_id, direction, position, key, operation, generation, attempt, service, amount, outcome, actor)"
            " SELECT id, 'do', 1, 'k', 'pay-out', 1, 1, 'bank', 5, 'done', 'x' FROM supervision_run WHERE key = %(processed)s",
            "UPDATE supervision_run SET workflow = 'refund-order' WHERE key = %(processed)s",
        ]
    ),
    "an order counts the pieces that its returns hold": "INSERT INTO orders_returnable (order_key, sku, delivered, returned)"
    " VALUES (%(processed)s, 'MUG-BLUE', 2, 1)",
    "a refund has its run or submission, and gives back what was asked for or nothing": "INSERT INTO orders_refund"
    " (public_id, order_key, number, amount, currency, reason, asked_by) VALUES ('nowhere', %(processed)s, 'R', 1, 'EUR', '', '')",
    "a return has its run or submission, and a run of return-goods its return": A_RETURN.format("'r1'"),
    "a return that is done has put its accepted pieces back into stock, and paid back no more than they are worth": ";".join(
        [A_RETURN.format("%(processed)s"), "UPDATE supervision_run SET workflow = 'return-goods' WHERE key = %(processed)s"]
    ),
}


def test_the_shop_s_own_rows_are_healthy(healthy: dict[str, str], mug: Product):
    states = dict(Order.objects.values_list("public_id", "run__process_state"))

    assert states == {healthy["processed"]: "Processed", healthy["cancelled"]: "Cancelled"}
    assert StockReservation.objects.filter(released_at__isnull=True).count() == 1
    assert list(registry.violations()) == []


def test_every_invariant_of_the_shop_is_seeded_below():
    assert audit_checks.__name__
    assert set(SHOP) == set(BREAKS)


@pytest.mark.parametrize("invariant", BREAKS)
def test_a_broken_invariant_of_the_shop_is_named(invariant: str, healthy: dict[str, str]):
    break_it(BREAKS[invariant], **healthy)

    assert [violation.invariant for violation in registry.violations_of(SHOP[invariant])]
