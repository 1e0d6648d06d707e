"""The mail address in what belongs to orders of others, and the name in the operators' log, where operators have written them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from orders.mails.resending import resend
from orders.privacy import people
from orders.queries import order_view
from orders.returns import correcting
from orders.returns.asking import ask
from supervision import testing
from supervision.ledger import reconciliation
from supervision.models import Finding
from supervision.operations import archive
from tests.orders.test_returns import goods, shop
from tests.shopping import an_account, place

from .kit import ADDRESS, EMAIL, SURNAME, hits
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


def test_what_operators_said_of_a_return_and_of_a_finding(shop, zoe, services):
    key = place(zoe, email=EMAIL, shipping_address=ADDRESS)
    shop.run()
    told(shop)
    olga = an_account("olga", "operator")
    back = ask(order_view(key), [{"sku": "MUG-BLUE", "quantity": 2}], "too small", by=zoe.username).public_id
    shop.run()
    goods(shop, back, ("MUG-BLUE", 1))
    report = {"lines": [{"sku": "MUG-BLUE", "accepted": 2}]}
    correcting.correct(back, report, reason=f"Mrs {SURNAME} has sent two", by=olga, idempotency_key="one")
    shop.run()
    services.dispute(testing.step(key, "charge-payment").result["intent"])
    reconciliation.compare("payment")
    reconciliation.settle(Finding.objects.get(order_key=key).pk, "adopt", by=olga, reason=f"{SURNAME} wrote to us")
    told(shop)

    erase(people.by_account(zoe.username))

    assert not hits().keys() - KEPT
