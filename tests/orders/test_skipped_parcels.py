"""What a customer is told of an order whose booking, or that of one of its parcels, an operator has skipped."""

from __future__ import annotations

from typing import Any

import pytest
from django.core import mail

from orders.progress import standing
from orders.queries import order_view
from orders.services import place_order
from supervision.testkit.run import Run
from tests.orders.test_archived_parcels import refused
from tests.orders.test_split_shipments import correct, parcel, shop
from tests.shopping import ADDRESS, a_request, an_account, place

__all__ = ["refused", "shop"]


@pytest.fixture(autouse=True)
def _mails(shop: Any, settings: Any) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"


def shown(key: str) -> tuple[str, str, str]:
    """The headline, and the title and note of the booking."""
    view = order_view(key)
    assert view is not None
    page = standing(view)
    [booking] = [stage for stage in page.stages if stage.name == "book-shipment"]
    return page.headline, booking.title, booking.note


def last_mail() -> Any:
    return mail.outbox[-1]


def test_of_two_parcels_one_is_booked(shop, refused):
    parcel(refused, 0).skip()
    correct(refused, 1)
    shop.run()

    assert shown(refused) == ("A part of your order is on its way", "A part of the delivery is booked", "Our team takes care of the rest.")
    message = last_mail()
    assert "A part of your order" in message.subject
    assert "A part of it is on its way" in message.body
    assert "A part of it is on its way" in message.alternatives[0].content
    assert "paid and on its way" not in message.body


def test_no_parcel_is_booked(shop, refused):
    parcel(refused, 0).skip()
    parcel(refused, 1).skip()
    shop.run()

    assert shown(refused) == ("Your order is not sent yet", "No delivery was booked", "Our team takes care of it.")
    assert "is paid" in last_mail().subject
    assert "on its way" not in last_mail().subject + last_mail().body


def test_the_customers_list_of_orders_says_it_in_short(shop, client):
    ada = an_account("ada")
    key = place_order(a_request(shipping_address={**ADDRESS, "postal_code": "00000"}), account=ada).public_id
    shop.run()
    Run(key).skip()
    shop.run()
    client.force_login(ada)

    listed = client.get("/orders/").text

    assert "Not sent yet" in listed
    assert "On its way" not in listed


def test_the_only_booking_is_skipped(shop):
    key = place(shipping_address={**ADDRESS, "postal_code": "00000"})
    shop.run()
    Run(key).skip()
    shop.run()

    assert shown(key) == ("Your order is not sent yet", "No delivery was booked", "Our team takes care of it.")
    assert "on its way" not in last_mail().subject + last_mail().body + last_mail().alternatives[0].content
