"""One product at two prices in an order: which price a returned piece has, and that no return gives back more than was paid.

The shop's own doors merge the lines of a product. So the tests split a line of a delivered order, as an import or a discount would.
"""

from __future__ import annotations

from decimal import Decimal

import pytest

from orders.documents.tables import Document
from orders.models import Order, OrderLine, ReturnLine
from orders.queries import order_view
from orders.returns import codes, correcting
from orders.returns.asking import ask
from orders.services import Conflict, InvalidOrder
from supervision.audit import registry
from supervision.errors import Refused
from supervision.operations import operator_verbs
from supervision.signals.sending import send_signal
from supervision.testkit.run import Run
from tests.engine.kit import at_once
from tests.orders.test_invoices import issue
from tests.orders.test_refund_parts import refunds_made
from tests.orders.test_returns import ada, deliver, goods, held, olga, path, shop, stock
from tests.shopping import a_client

__all__ = ["ada", "olga", "shop"]
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


def lines_of(back: str) -> list[tuple[Decimal, int, int | None, int | None, int, int]]:
    found = ReturnLine.objects.filter(of__public_id=back, sku="MUG-BLUE").order_by("unit_price")
    return list(found.values_list("unit_price", "quantity", "accepted", "refused", "holds", "restocked"))


def agrees() -> None:
    """The audit, but for the stock of the order, whose lines the fixture has split."""
    assert [one for one in registry.violations() if not one.invariant.startswith("stock is reserved")] == []


def test_one_return_takes_pieces_at_two_prices_and_pays_each_at_its_own(shop, delivered, services):
    before = stock("MUG-BLUE")
    back = back_of(delivered, mugs(3))
    shop.run()
    assert lines_of(back) == [(LOW, 2, None, None, 2, 0), (HIGH, 1, None, None, 1, 0)]
    goods(shop, back, ("MUG-BLUE", 3))
    issue()

    Run(back).assert_state("Processed")
    assert Run(back).results["await-goods"] == {"accepted": {"MUG-BLUE": 3}, "refused": {}, "amount": "48.90"}
    assert Run(back).results["restock-goods"] == {"restocked": {"MUG-BLUE": 3}}
    assert refunds_made(services, delivered) == [4890]
    assert lines_of(back) == [(LOW, 2, 3 - 1, 0, 2, 2), (HIGH, 1, 1, 0, 1, 1)]
    assert (stock("MUG-BLUE"), held(delivered)) == (before + 3, {"MUG-BLUE": 3, "TOTE-OCHRE": 0})
    note = Document.objects.get(kind="credit_note")
    assert [(one["quantity"], one["unit_price"], one["amount"]) for one in note.body["lines"]] == [
        (2, "12.90", "25.80"),
        (1, "23.10", "23.10"),
    ]
    agrees()


def test_the_cheapest_pieces_are_accepted_first_and_the_report_may_name_a_price(shop, delivered, services):
    first = back_of(delivered, mugs(3))
    shop.run()
    goods(shop, first, ("MUG-BLUE", 1, 1))
    assert lines_of(first) == [(LOW, 2, 1, 1, 1, 1), (HIGH, 1, 0, 0, 0, 0)]
    assert refunds_made(services, delivered) == [1290]

    second = back_of(delivered, mugs(2))
    shop.run()
    assert [line[:2] for line in lines_of(second)] == [(LOW, 1), (HIGH, 1)]
    at = [{"sku": "MUG-BLUE", "unit_price": "23.10", "accepted": 1}, {"sku": "MUG-BLUE", "unit_price": "12.9", "accepted": 0, "refused": 1}]
    send_signal(second, codes.RECEIVED, {"lines": at}, sent_by="the warehouse")
    shop.run()

    assert lines_of(second) == [(LOW, 1, 0, 1, 0, 0), (HIGH, 1, 1, 0, 1, 1)]
    assert sorted(refunds_made(services, delivered)) == [1290, 2310]
    agrees()


def test_the_api_takes_a_report_by_price_and_names_what_does_not_fit(shop, delivered, olga):
    back = back_of(delivered, mugs(3))
    shop.run()

    def report(*lines: dict) -> tuple[int, list[str]]:
        told = olga.post(f"/api/v1/returns/{back}/goods/", {"lines": [{"sku": "MUG-BLUE", **line} for line in lines], "reason": "x"})
        return told.status_code, list(told.json().get("errors", {}))

    assert report({"unit_price": "9.00", "accepted": 1}) == (400, ["lines[0].unit_price"])
    assert report({"unit_price": "23.10", "accepted": 2}) == (400, ["lines[0].accepted"])
    assert report({"unit_price": "23.10", "accepted": 1}, {"accepted": 1}) == (400, ["lines[1].sku"])
    assert report({"unit_price": "23.10", "accepted": 1}, {"unit_price": "12.90", "accepted": 2}) == (202, [])
    shop.run()
    assert [line[2] for line in lines_of(back)] == [2, 1]


def test_an_undone_return_at_two_prices_takes_all_of_its_pieces_out_of_stock(shop, delivered, services):
    before = stock("MUG-BLUE")
    back = back_of(delivered, mugs(3))
    services.faults("payment", "error_before", latency_ms=0)
    shop.run()
    goods(shop, back, ("MUG-BLUE", 3))
    assert stock("MUG-BLUE") == before + 3
    operator_verbs.compensate(back, by="olga", reason="x")
    services.clear()
    shop.advance("10m")

    Run(back).assert_state("Cancelled")
    assert (stock("MUG-BLUE"), held(delivered)["MUG-BLUE"]) == (before, 0)


def test_named_and_unnamed_pieces_together_are_taken_from_what_is_left(shop, delivered):
    back = back_of(delivered, mugs(1, HIGH), mugs(1, LOW), mugs(1))

    assert [line[:2] for line in lines_of(back)] == [(LOW, 2), (HIGH, 1)]
    with pytest.raises(Conflict, match="More than was delivered"):
        back_of(delivered, mugs(1))


def test_too_many_pieces_at_a_named_price_are_refused_at_their_line(delivered):
    with pytest.raises(Conflict, match=r"Only 1 of MUG-BLUE at 23\.10") as refused:
        back_of(delivered, mugs(1), mugs(2, HIGH))

    assert refused.value.code == "beyond_delivered"
    assert list(refused.value.errors["lines"]) == [1]
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


def test_a_price_that_the_order_does_not_have_is_refused_at_its_line(delivered):
    with pytest.raises(InvalidOrder) as wrong:
        back_of(delivered, mugs(1, LOW), mugs(1, Decimal("1.00")))

    assert list(wrong.value.errors["lines"][1]) == ["unit_price"]


def test_the_api_takes_the_price_of_a_line(delivered, ada):
    client = a_client(ada)
    wrong = client.post(path(delivered), {"lines": [{**mugs(1), "unit_price": "dear"}], "reason": "x"})
    made = client.post(path(delivered), {"lines": [{**mugs(1), "unit_price": "23.10"}], "reason": "x"})

    assert (wrong.status_code, list(wrong.json()["errors"])) == (400, ["lines"])
    assert made.status_code == 202
    assert price_of(made.json()["id"]) == HIGH


def test_the_shops_page_takes_all_prices_in_one_return(shop, delivered, ada, client):
    client.force_login(ada)
    shown = client.post(f"/orders/{delivered}/returns/", {"quantity-MUG-BLUE": "3", "reason": "x", "key": "k"}, follow=True).text

    assert "Your return is noted" in shown
    assert "3 of Blue mug" in shown


def test_returns_at_two_prices_at_the_same_moment_never_exceed_what_was_bought(shop, delivered):
    def one(number: int) -> str:
        try:
            return back_of(delivered, mugs(2), once=f"key-{number}")
        except Conflict as refused:
            return refused.code

    told = at_once(*[lambda number=number: one(number) for number in range(4)])

    assert sorted(one for one in told if one == "beyond_delivered") == ["beyond_delivered"] * 3
    assert held(delivered)["MUG-BLUE"] == 2
    last = back_of(delivered, mugs(1))
    assert lines_of(last)[0][:2] == (HIGH, 1)


def test_credit_notes_at_two_prices_take_back_exactly_the_vat_of_their_lines(shop, delivered):
    lines = Order.objects.get(public_id=delivered).lines.filter(sku="MUG-BLUE")
    lines.filter(unit_price=LOW).update(unit_price="12.93")
    lines.filter(unit_price=HIGH).update(unit_price="23.04")  # each line rounded by itself, they have a cent less of VAT than together
    for price in ("23.04", "12.93", "12.93"):
        back = back_of(delivered, mugs(1, Decimal(price)))
        shop.run()
        goods(shop, back, ("MUG-BLUE", 1))
    issue()

    invoice, *notes = Document.objects.filter(order_key=delivered).order_by("pk")
    assert [one["vat"] for one in invoice.body["lines"] if one["sku"] == "MUG-BLUE"] == ["4.66", "4.15"]
    assert [one["vat"] for note in notes for one in note.body["lines"]] == ["4.15", "2.33", "2.33"]
    agrees()


def test_a_correction_takes_no_piece_at_a_price_that_another_return_has_taken_meanwhile(shop, delivered, services):
    first = back_of(delivered, mugs(1, HIGH))
    shop.run()
    goods(shop, first, ("MUG-BLUE", 0, 1))
    second = back_of(delivered, mugs(1, HIGH))
    shop.run()
    goods(shop, second, ("MUG-BLUE", 1))
    came = {"lines": [{"sku": "MUG-BLUE", "accepted": 1}]}

    with pytest.raises(Refused, match="MUG-BLUE") as refused:
        correcting.correct(first, came, reason="it came", by="olga", idempotency_key="one")

    assert refused.value.code == "beyond_delivered"
    assert refunds_made(services, delivered) == [2310]
    agrees()
