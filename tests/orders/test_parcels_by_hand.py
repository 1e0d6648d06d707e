"""A parcel of a split order that an operator has booked by hand, and whose result says what the operator knows."""

from __future__ import annotations

from typing import Any

import pytest
from django.core import mail

from orders.mails.resending import resend
from orders.parcels import splitting
from supervision.testkit.run import Run
from tests.orders.test_split_shipments import correct, parcel, shop, split
from tests.shopping import ADDRESS

__all__ = ["shop"]


@pytest.mark.parametrize("result", [{"shipment": "by telephone"}, {"shipment": "by telephone", "tracking_number": None}, {}])
def test_the_customer_gets_the_mail_with_the_numbers_that_are_known(shop, settings, result):
    settings.EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
    key = split(shipping_address={**ADDRESS, "postal_code": "00000"})
    shop.run()
    parcel(key, 0).complete(result)
    correct(key, 1)
    shop.run()

    Run(key).assert_state("Processed")
    [known] = splitting.trackings(Run(key).results["book-shipment"])
    resend(key, by="olga", reason="it was lost", idempotency_key="m1")
    shop.run()
    assert [known in str(message.body) for message in mail.outbox] == [True, True]


@pytest.mark.parametrize(
    "booked", [None, {}, {"results": None}, {"results": "by telephone"}, {"results": ["by telephone", {"book-shipment": "by telephone"}]}]
)
def test_a_result_of_the_booking_that_says_something_else_has_no_numbers(booked: Any):
    assert splitting.trackings(booked) == []
