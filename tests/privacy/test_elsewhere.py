"""The person's mail address in what belongs to orders of others, where an operator has written it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from orders.mails.resending import resend
from orders.privacy import people
from supervision.operations import archive
from tests.orders.test_returns import shop
from tests.shopping import an_account, place

from .kit import EMAIL, hits
from .test_erasing import KEPT, erase, told, zoe

__all__ = ["shop", "zoe"]

THEIRS = {"name": "Bob Marley", "line1": "Via Garibaldi 3", "city": "Torino", "postal_code": "10121", "country": "IT"}


@pytest.mark.parametrize("kept", ["here", "archived", "archived with its rows"])
def test_a_mail_of_anothers_order_that_was_sent_again_to_the_person(shop, zoe, kept):
    key = place(an_account("bob", "customer"), email="bob@example.com", shipping_address=THEIRS)
    shop.run()
    told(shop)
    resend(key, email=EMAIL, reason="it is a present", by=an_account("olga", "operator"), idempotency_key="two")
    shop.run()
    told(shop)
    if kept != "here":
        for _ in range(3):
            for _moved in archive.batches(timedelta(0), keep_orders=kept == "archived"):
                pass

    erase(people.by_account(zoe.username))

    assert not hits().keys() - KEPT
