"""The parcels of a split order that is archived: each as the carrier has told of it, also if its run was cancelled and begun again."""

from __future__ import annotations

from datetime import timedelta

import pytest

from supervision import testing
from supervision.models import ArchivedRun
from supervision.operations import archive
from supervision.testkit.run import Run
from tests.orders.test_split_shipments import correct, key_of, parcel, parcels, shop, split
from tests.shopping import ADDRESS
from tests.support.parcels import event, tell

__all__ = ["shop"]


@pytest.fixture
def refused(shop) -> str:
    """An order of two parcels, of which the carrier has refused both."""
    key = split(shipping_address={**ADDRESS, "postal_code": "00000"})
    shop.run()
    return key


def archived(key: str) -> list[dict]:
    testing.let_pass(100 * 86_400)
    for _ in range(3):
        list(archive.batches(timedelta(days=90), keep_orders=True))
    assert ArchivedRun.objects.filter(key=key).exists()
    return parcels(key)


def test_parcels_that_were_booked_under_another_key_are_as_the_carrier_told(shop, refused):
    correct(refused, 1)
    parcel(refused, 0).cancel()
    shop.run()
    Run(refused).resubmit(new_generation=True)
    shop.run()
    again = Run(f"{refused}:book-shipment[0]:2:child")
    again.resubmit(amend={"shipping_address": ADDRESS})
    shop.run()
    for key in (testing.step(again.key, "book-shipment").idempotency_key, key_of(refused, 1)):
        assert tell(event(key, "delivered")).text == "Stored.\n"
    before = parcels(refused)
    assert [(one["state"], one["warehouse"]) for one in before] == [("delivered", "main"), ("delivered", "greenhouse")]

    assert archived(refused) == before


def test_a_parcel_that_an_operator_has_skipped_is_none(shop, refused):
    parcel(refused, 0).skip()
    correct(refused, 1)
    shop.run()
    [before] = parcels(refused)

    assert archived(refused) == [before]
