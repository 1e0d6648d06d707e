"""The shop's staff at the order pages of others: it is never their customer, even with the link of a guest's order."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from orders.models import Return
from orders.payments import state
from orders.queries import order_view
from supervision.models import Approval
from supervision.operations import pauses
from tests.engine.conftest import tuned
from tests.orders.test_returns import LINES, deliver, shop
from tests.shopping import DECLINED, an_account, place

__all__ = ["shop", "tuned"]
WHO = {"viewer": ["view_order", "view_run"], "duties": ["handle_incident", "settle_dead_letter"], "other verb": ["pause_run"]}


def account(name: str, *rights: str, groups: tuple[str, ...] = ()) -> User:
    user = an_account(name, *groups)
    user.user_permissions.set(Permission.objects.filter(codename__in=rights))
    return User.objects.get(pk=user.pk)


def browser(user: User | None) -> Client:
    client = Client()
    if user is not None:
        client.force_login(user)
    return client


def charged(shop, by: User | None = None) -> str:
    """An order over 79.80 EUR that is charged and waits for its booking."""
    pauses.pause("agent", "shipping", reason="r", by="olga")
    key = place(by, lines=LINES)
    shop.run()
    assert order_view(key).payment.state == state.PAID
    return key


def cancel(user: User | None, key: str) -> int:
    return browser(user).post(f"/orders/{key}/cancel/", {"reason": "r"}).status_code


def outcome(shop, key: str) -> str:
    pauses.lift("agent", "shipping", by="olga")
    shop.run()
    return str(order_view(key).process_state)


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("placed_by", ["guest", "client"])
def test_who_has_no_right_to_cancel_cancels_no_order_by_its_link(shop, who, placed_by):
    key = charged(shop, None if placed_by == "guest" else an_account("acme", "client"))
    vera = account("vera", *WHO[who])

    assert "Yes, cancel the order" not in browser(vera).get(f"/orders/{key}/").text
    assert cancel(vera, key) == 404
    assert outcome(shop, key) == "Processed"


@pytest.mark.parametrize("who", WHO)
def test_who_has_no_right_pays_and_returns_no_guests_order(shop, who):
    vera = browser(account("vera", *WHO[who]))
    unpaid, delivered = place(payment_method=DECLINED), deliver(shop)
    goods = {"quantity-MUG-BLUE": "1", "reason": "r", "key": "k"}

    pages = [vera.get(f"/orders/{key}/").text for key in (unpaid, delivered)]
    codes = [vera.post(f"/orders/{unpaid}/payment/", {"payment_method": "pm_card_visa"}).status_code]
    codes += [vera.post(f"/orders/{delivered}/returns/", goods).status_code]
    shop.run()

    assert ('name="payment_method"' in pages[0], "Return goods" in pages[1], codes) == (False, False, [404, 404])
    assert (order_view(unpaid).payment.state, Return.objects.count()) == (state.REFUSED, 0)


def test_the_right_to_cancel_cancels_a_guests_order_after_a_second_operator(shop, tuned):
    tuned(APPROVAL_ABOVE={"": "20"})
    key = charged(shop)
    carla = account("carla", "view_order", "cancel_run")

    assert cancel(carla, key) == 302

    asked = Approval.objects.get()
    assert (asked.verb, asked.asked_by, asked.order_key) == ("cancel", "carla", key)
    assert outcome(shop, key) == "Processed"


@pytest.mark.parametrize("who", ["visitor", "customer"])
def test_the_link_of_a_guests_order_is_enough_for_who_is_no_staff(shop, who, tuned):
    tuned(APPROVAL_ABOVE={"": "20"})
    key = charged(shop)

    assert cancel(None if who == "visitor" else an_account("eve", "customer"), key) == 302
    assert (outcome(shop, key), Approval.objects.count()) == ("Cancelled", 0)


def test_staff_acts_on_its_own_orders_as_any_customer(shop, tuned):
    tuned(APPROVAL_ABOVE={"": "20"})
    vera = account("vera", *WHO["viewer"], groups=("customer",))
    key = charged(shop, vera)

    assert cancel(vera, key) == 302
    assert (outcome(shop, key), Approval.objects.count()) == ("Cancelled", 0)
