"""Shipments compared with our books: each difference is a finding, and each verb settles the findings that it fits."""

from __future__ import annotations

import pytest

from orders.gateways import carrier
from supervision import testing
from supervision.ledger import reconciliation
from supervision.ledger.reconciliation import CannotCompare, CannotSettle
from supervision.models import Effect
from supervision.operations import operator_verbs
from tests.engine import kit
from tests.reconciliation.conftest import rest
from tests.support.requests import ADDRESS

pytestmark = pytest.mark.usefixtures("budget")
ITEMS = [{"sku": "MUG-BLUE", "quantity": 1}]


@pytest.fixture
def found(found):
    """Compare with the carrier."""
    return lambda *orders, **how: found(*orders, service="carrier", **how)


def book(order: str, name: str = "stray") -> str:
    """Book a shipment that is not in our books."""
    return carrier.book(f"{order}:{name}", order, ADDRESS, ITEMS).id


def own_parcel(order: str) -> str:
    return testing.step(order, "book-shipment").result["shipment"]


def own_key(order: str) -> str:
    return testing.step(order, "book-shipment").idempotency_key


def live(order: str) -> set[str]:
    return {one.id for one in carrier.listed(kit.fetch("SELECT now() - interval '1 hour'")[0][0]) if one.live and one.order == order}


def facts(rows):
    return [(row.kind, row.external_id, tuple(row.verbs)) for row in rows]


def test_a_shipment_of_an_unknown_order_is_found_at_once_and_deleted_once(services, order, found):
    stray = book(order)

    [finding] = found(order)
    assert facts([finding]) == [("orphan_shipment", stray, ("cancel",))]
    reconciliation.settle(finding.pk, "cancel", by="olga", reason="the order is lost")

    assert live(order) == set()
    assert found(order) == []
    assert services.effects("carrier", "delete", order) == 1


def test_a_second_shipment_of_an_order_is_deleted_and_its_own_stands(services, buy, found):
    order = buy()
    stray = book(order)

    [finding] = found(order)
    assert facts([finding]) == [("orphan_shipment", stray, ("cancel",))]
    reconciliation.settle(finding.pk, "cancel", by="olga", reason="twice")

    assert live(order) == {own_parcel(order)}
    assert found(order) == []


def test_a_second_shipment_under_the_same_key_is_deleted_by_itself(services, buy, found):
    order = buy()
    services.forget("carrier")
    stray = carrier.book(own_key(order), order, ADDRESS, ITEMS).id

    [finding] = found(order)
    assert facts([finding]) == [("orphan_shipment", stray, ("cancel",))]
    reconciliation.settle(finding.pk, "cancel", by="olga", reason="the carrier forgot the key")

    assert live(order) == {own_parcel(order)}
    assert found(order) == []


def test_the_only_shipment_of_a_fulfilled_order_is_adopted_when_our_books_lost_it(services, buy, found):
    order = buy()
    own = own_parcel(order)
    kit.fetch("UPDATE supervision_stepstate SET result = '{}' WHERE name = 'book-shipment'")
    kit.fetch("DELETE FROM supervision_effect WHERE service = 'carrier'")

    [finding] = found(order)
    assert facts([finding]) == [("orphan_shipment", own, ("adopt", "cancel"))]
    reconciliation.settle(finding.pk, "adopt", by="olga", reason="it is theirs")

    assert found(order) == []
    assert [(one.external_id, one.outcome) for one in Effect.objects.filter(service="carrier")] == [(own, "done")]
    assert live(order) == {own}


def test_a_fulfilled_order_whose_shipment_was_deleted_is_found_and_accepted(services, buy, found):
    order, bystander = buy(), buy()
    carrier.delete(own_key(order), order)

    [finding] = found(order, bystander)
    assert facts([finding]) == [("missing_shipment", own_parcel(order), ("adopt",))]
    reconciliation.settle(finding.pk, "adopt", by="olga", reason="sent by hand")

    assert found(order, bystander) == []


def test_a_live_shipment_of_a_cancelled_order_is_deleted(services, buy, found):
    order = buy("Error", shipping_address={**ADDRESS, "postal_code": "00000"})
    operator_verbs.cancel(order, by="olga", reason="the customer called")
    rest(order, "Cancelled")
    assert found(order) == []
    late = book(order, "late")

    [finding] = found(order)
    assert facts([finding]) == [("live_after_cancel", late, ("cancel",))]
    reconciliation.settle(finding.pk, "cancel", by="olga", reason="cancelled")

    assert live(order) == set()
    assert found(order) == []


@pytest.mark.parametrize("mode", ["error_after_effect", "reset_after_effect", "error_before"])
def test_a_deletion_whose_answer_is_lost_is_made_once(services, order, found, mode):
    book(order)
    [finding] = found(order)
    services.faults("carrier", mode)
    try:
        reconciliation.settle(finding.pk, "cancel", by="olga", reason="lost")
    except (CannotSettle, CannotCompare):
        services.clear()
        reconciliation.settle(finding.pk, "cancel", by="olga", reason="lost, again")

    services.clear()
    assert services.effects("carrier", "delete", order) == 1
    assert found(order) == []


def test_a_carrier_that_cannot_be_read_gives_no_findings_and_says_so(services, order, found):
    book(order)
    services.faults("carrier", "error_before")

    with pytest.raises(CannotCompare):
        found(order)

    services.clear()
    assert len(found(order)) == 1
