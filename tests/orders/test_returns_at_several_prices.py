"""One product at two prices in an order: which price a returned piece has, and that no return gives back more than was paid.

The shop's own doors merge the lines of a product. So the tests split a line of a delivered order, as an import or a discount would.
"""

from __future__ import annotations

from decimal import Decimal

import pytest

from orders.models import Order, OrderLine, ReturnLine
from orders.queries import order_view
from orders.returns.asking import ask
from orders.services import Conflict, InvalidOrder
from supervision.testkit.run import Run
from tests.engine.kit import at_once
from tests.orders.test_refund_parts import refunds_made
from tests.orders.test_returns import ada, deliver, goods, held, path, shop
from tests.shopping import a_client

__all__ = ["ada", "shop"]
LOW, HIGH = Decimal("12.90"), Decimal("23.10")


@pytest.fixture
def delivered(shop, ada) -> str:
    """An order over 2 mugs at 12.90, 1 mug at 23.10 and 1 tote at 18.00, 66.90 EUR: charged as 3 totes and a mug."""
    key = deliver(shop, ada, lines=[{"sku": "MUG-BLUE", "quantity": 1}, {"sku": "TOTE-OCHRE", "quantity": 3}])
    order = Order.objects.get(public_id=key)
    order.lines.filter(sku="MUG-BLUE").update(quantity=2)
    order.lines.filter(sku="TOTE-OCHRE").update(quantity=1)
    OrderLine.objects.create(order=order, sku="MUG-BLUE", name="Blue mug", quantity=1, unit_price=HIGH)
    assert order.total == sum(line.quantity * line.unit_price for line in order.lines.all())
    return key


def back_of(key: str, *lines: dict, once: str | None = None) -> str:
    view = order_view(key)
    assert view is not None
    return ask(view, lines, "too small", by="customer", idempotency_key=once).public_id


def mugs(pieces: int, price: Decimal | None = None) -> dict:
    return {"sku": "MUG-BLUE", "quantity": pieces} | ({"unit_price": price} if price is not None else {})


def price_of(back: str) -> Decimal:
    return ReturnLine.objects.get(of__public_id=back, sku="MUG-BLUE").unit_price


def test_the_lowest_price_counts_first_and_then_the_next_one(shop, delivered, services):
    first, second, third = (back_of(delivered, mugs(1)) for _ in range(3))
    assert [price_of(one) for one in (first, second, third)] == [LOW, LOW, HIGH]
    with pytest.raises(Conflict, match="More than was delivered"):
        back_of(delivered, mugs(1))

    shop.run()
    for one in (first, second, third):
        goods(shop, one, ("MUG-BLUE", 1))

    assert sorted(refunds_made(services, delivered)) == [1290, 1290, 2310]
    assert services.charged(delivered) == 6690 - 4890, "the tote is left"


def test_a_customer_names_the_line(shop, delivered, services):
    back = back_of(delivered, mugs(1, HIGH))
    shop.run()
    goods(shop, back, ("MUG-BLUE", 1))

    assert refunds_made(services, delivered) == [2310]
    with pytest.raises(Conflict, match=r"Only 0 of MUG-BLUE at 23\.10"):
        back_of(delivered, mugs(1, HIGH))
    assert price_of(back_of(delivered, mugs(2))) == LOW


def test_a_return_that_needs_two_prices_is_refused_and_says_how_many_are_left(delivered):
    with pytest.raises(Conflict, match=r"Only 2 of MUG-BLUE at 12\.90") as refused:
        back_of(delivered, mugs(3))

    assert refused.value.code == "several_prices"
    assert not ReturnLine.objects.exists()
    assert held(delivered) == {}


def test_what_was_refused_or_cancelled_may_come_back_at_its_price_again(shop, delivered):
    first = back_of(delivered, mugs(2))
    shop.run()
    goods(shop, first, ("MUG-BLUE", 1, 1))
    Run(first).assert_state("Processed")

    assert price_of(back_of(delivered, mugs(1))) == LOW
    assert price_of(back_of(delivered, mugs(1))) == HIGH


def test_returns_at_the_same_moment_never_take_a_price_twice(shop, delivered):
    def one(number: int) -> str:
        try:
            return str(price_of(back_of(delivered, mugs(1), once=f"key-{number}")))
        except Conflict as refused:
            return refused.code

    assert sorted(at_once(*[lambda number=number: one(number) for number in range(4)])) == ["12.90", "12.90", "23.10", "beyond_delivered"]


def test_the_same_key_is_the_same_return_also_at_the_same_moment(shop, delivered):
    told = at_once(*[lambda: back_of(delivered, mugs(1), once="one") for _ in range(4)])

    assert len(set(told)) == 1
    assert ReturnLine.objects.count() == 1


@pytest.mark.parametrize(
    ("lines", "at"),
    [([mugs(1, Decimal("1.00"))], 0), ([mugs(1, LOW), mugs(1, HIGH)], 1), ([mugs(1, LOW), mugs(1)], 1)],
)
def test_a_price_that_the_order_does_not_have_or_two_of_them_are_refused_at_their_line(delivered, lines, at):
    with pytest.raises(InvalidOrder) as wrong:
        back_of(delivered, *lines)

    assert list(wrong.value.errors["lines"][at]) == ["unit_price"]


def test_the_api_takes_the_price_of_a_line(delivered, ada):
    client = a_client(ada)
    wrong = client.post(path(delivered), {"lines": [{**mugs(1), "unit_price": "dear"}], "reason": "x"})
    made = client.post(path(delivered), {"lines": [{**mugs(1), "unit_price": "23.10"}], "reason": "x"})

    assert (wrong.status_code, list(wrong.json()["errors"])) == (400, ["lines"])
    assert made.status_code == 202
    assert price_of(made.json()["id"]) == HIGH


def test_the_shops_page_says_which_pieces_to_ask_for_first(delivered, ada, client):
    client.force_login(ada)
    shown = client.post(f"/orders/{delivered}/returns/", {"quantity-MUG-BLUE": "3", "reason": "x", "key": "k"}, follow=True).text

    assert "Only 2 of MUG-BLUE at 12.90 can be returned" in shown
