"""Parcels of a split order with which operators have dealt: booked by hand, or cancelled alone."""

from __future__ import annotations

from typing import Any

import pytest
from django.core import mail

from orders.mails.resending import resend
from orders.models import Parcel
from orders.parcels import splitting
from supervision.models import StepState
from supervision.testkit.run import Run
from tests.orders.test_split_shipments import correct, key_of, parcel, shop, split
from tests.shopping import ADDRESS
from tests.support.parcels import event, tell

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


@pytest.mark.parametrize(("verb", "told"), [("cancel", "not_stopped"), ("abandon", None)])
def test_a_parcel_that_travels_although_its_own_run_was_cancelled_is_told(shop, verb, told):
    key = split(shipping_address={**ADDRESS, "postal_code": "00000"})
    shop.run()
    correct(key, 1)
    shop.run()
    before = key_of(key, 0)
    StepState.objects.filter(idempotency_key=before).update(effect="unknown")
    getattr(parcel(key, 0), verb)()
    shop.run()
    Run(key).assert_state("Error")

    assert [tell(event(one)).text for one in (before, key_of(key, 1))] == ["Stored.\n"] * 2

    assert dict(Parcel.objects.values_list("key", "trouble")) == {before: told, key_of(key, 1): None}


@pytest.mark.parametrize(
    "booked", [None, {}, {"results": None}, {"results": "by telephone"}, {"results": ["by telephone", {"book-shipment": "by telephone"}]}]
)
def test_a_result_of_the_booking_that_says_something_else_has_no_numbers(booked: Any):
    assert splitting.trackings(booked) == []
