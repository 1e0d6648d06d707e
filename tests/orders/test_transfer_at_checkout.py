"""An order that would reserve at the checkout and was paid by bank transfer there: giving that money up needs a second operator."""

from __future__ import annotations

from decimal import Decimal

import pytest

from orders import staying
from orders.models import Order
from orders.payments import codes
from orders.payments.again import pay_again
from orders.queries import order_view
from supervision.errors import AwaitsApproval
from supervision.operations import completing, operator_verbs, resuming
from supervision.operations.audit_log import Exempt
from supervision.operations.ending import abandoning
from supervision.signals.sending import send_signal
from supervision.testkit.run import Run
from tests.orders.test_transfers_not_taken import DECLINED, NOWHERE
from tests.shopping import a_product, place

VERBS = {
    "abandon": abandoning.abandon,
    "cancel": operator_verbs.cancel,
    "compensate": operator_verbs.compensate,
    "resume": lambda key, **facts: resuming.resume_from(key, codes.AUTHORISE, **facts),
}


@pytest.fixture
def shop(sas, services, transactional_db, settings):
    a_product()
    settings.SHOP_CAPTURE, settings.BANK_ACCOUNT = codes.AFTER_BOOKING, "Harbour Goods, IT60"
    settings.SUPERVISION = {**settings.SUPERVISION, "APPROVAL_ABOVE": {"": Decimal("20")}}
    return sas


def waits(shop) -> str:
    """The public id of an order of 25.80 EUR with a declined card that waits for a transfer at its checkout."""
    key = place(payment_method=DECLINED, shipping_address=NOWHERE)
    shop.run()
    pay_again(order_view(key), codes.BANK_TRANSFER, by="customer")
    shop.run()
    return key


def transfer(shop, key: str, amount: str) -> None:
    send_signal(key, codes.TRANSFER, {"amount": amount, "currency": "EUR", "reference": "T1"}, sent_by="the bank")
    shop.run()


def by_signal(shop) -> str:
    key = waits(shop)
    transfer(shop, key, "25.80")
    return key


def by_hand(shop) -> str:
    key = waits(shop)
    result = {"received": "25.80", "method": codes.BANK_TRANSFER}
    completing.complete(key, by=Exempt("olga and bob"), reason="by our account", result=result)
    shop.run()
    return key


def in_part(shop) -> str:
    key = waits(shop)
    transfer(shop, key, "10")
    return key


def not_taken(shop) -> str:
    key = place(payment_method=DECLINED)
    shop.run()
    transfer(shop, key, "25.80")
    return key


def caution(key: str) -> str:
    order = Order.objects.get(public_id=key)
    return staying.in_words(order, order.run, order_view(key).steps)


@pytest.mark.parametrize(
    ("paid", "verb"),
    [
        *((by_signal, verb) for verb in VERBS),
        *((by_hand, verb) for verb in ("abandon", "cancel")),
        *((paid, verb) for paid in (in_part, not_taken) for verb in ("abandon", "cancel", "compensate")),
    ],
)
def test_an_operator_needs_a_second_one_for_a_transfer_that_came_at_the_checkout(shop, paid, verb):
    key = paid(shop)
    state = Run(key).state

    with pytest.raises(AwaitsApproval, match=r"25\.80 EUR are at stake"):
        VERBS[verb](key, by="olga", reason="the customer is lost")

    assert Run(key).state == state


@pytest.mark.parametrize(
    ("paid", "said"),
    [
        (by_signal, "25.80 EUR stay charged: the customer does not get the money back."),
        (by_hand, "25.80 EUR stay charged: the customer does not get the money back."),
        (in_part, "It is not known whether 25.80 EUR are charged: if they are, the customer does not get them back."),
    ],
)
def test_the_preview_says_that_the_money_of_the_transfer_stays_with_the_shop(shop, paid, said):
    key = paid(shop)

    assert caution(key).startswith(said)
    assert "reserved" not in caution(key)


def test_an_amount_that_is_only_reserved_needs_no_second_operator(shop):
    key = place(shipping_address=NOWHERE)
    shop.run()
    assert caution(key).startswith("25.80 EUR may stay reserved on the customer's card.")

    assert operator_verbs.cancel(key, by="olga", reason="the customer has called") == "Compensating"
