"""The stock agent never sells a piece twice: concurrent cohorts, a repeated key, orders for more than the stock."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection, transaction

from orders.agents.stock import StockAgent
from orders.models import Product, StockReservation
from supervision import PermanentFailure
from tests.support.requests import StepOfOrder

agent = StockAgent()


@pytest.fixture
def shelf(db):
    """Fifty blue mugs, three red ones, and a product that no order contains."""
    for sku, available in (("MUG-BLUE", 50), ("MUG-RED", 3), ("PLATE", 7)):
        Product.objects.create(sku=sku, name=sku, price="12.90", available=available)


def step(order: str, **lines: int) -> StepOfOrder:
    wanted = [{"sku": sku.replace("_", "-"), "name": sku, "quantity": n, "unit_price": "1.00"} for sku, n in lines.items()]
    return StepOfOrder(order, "reserve-stock", payload={"lines": wanted})


def available() -> dict[str, int]:
    return dict(Product.objects.values_list("sku", "available"))


def held(order: str) -> dict[str, int]:
    rows = StockReservation.objects.filter(order_key=order, released_at=None)
    return dict(rows.values_list("sku", "quantity"))


def test_the_agent_takes_each_orders_lines_when_all_are_there(shelf, django_assert_num_queries):
    requests = [step("a", MUG_BLUE=2, MUG_RED=1).request(), step("b", MUG_BLUE=3).request()]

    with django_assert_num_queries(4):
        results = agent.perform_many(requests)

    assert results == [{"reserved": {"MUG-BLUE": 2, "MUG-RED": 1}}, {"reserved": {"MUG-BLUE": 3}}]
    assert available() == {"MUG-BLUE": 45, "MUG-RED": 2, "PLATE": 7}
    assert held("a") == {"MUG-BLUE": 2, "MUG-RED": 1}


def test_the_agent_takes_nothing_of_an_order_when_one_line_is_short(shelf):
    [refusal, result] = agent.perform_many([step("a", MUG_BLUE=2, MUG_RED=4).request(), step("b", MUG_RED=3).request()])

    assert isinstance(refusal, PermanentFailure)
    assert refusal.code == "out_of_stock"
    assert str(refusal) == "Out of stock: 4 of MUG-RED wanted, 3 available."
    assert refusal.public_message
    assert result == {"reserved": {"MUG-RED": 3}}
    assert available() == {"MUG-BLUE": 50, "MUG-RED": 0, "PLATE": 7}
    assert held("a") == {}


def test_a_product_that_does_not_exist_is_out_of_stock(shelf):
    [refusal] = agent.perform_many([step("a", MUG_GREEN=1).request()])

    assert isinstance(refusal, PermanentFailure)


def test_the_same_product_on_two_lines_counts_as_one(shelf):
    twice = step("a", MUG_RED=2)
    twice.payload["lines"] *= 2

    [refusal] = agent.perform_many([twice.request()])

    assert isinstance(refusal, PermanentFailure)
    assert available()["MUG-RED"] == 3


def test_the_agent_takes_once_when_it_runs_twice_with_one_key(shelf):
    [first] = agent.perform_many([step("a", MUG_BLUE=2).request()])
    [second] = agent.perform_many([step("a", MUG_BLUE=2).request(attempt=2)])

    assert first == second
    assert available()["MUG-BLUE"] == 48


def test_undo_puts_back_once(shelf):
    agent.perform_many([step("a", MUG_BLUE=2, MUG_RED=1).request(), step("bystander", MUG_BLUE=5).request()])

    results = [agent.compensate_many([step("a").undo()]) for _ in range(2)]

    assert results == [[{"released": {"MUG-BLUE": 2, "MUG-RED": 1}}], [{"released": {}}]]
    assert available() == {"MUG-BLUE": 45, "MUG-RED": 3, "PLATE": 7}
    assert held("bystander") == {"MUG-BLUE": 5}


def test_undo_of_something_that_never_happened_succeeds(shelf):
    assert agent.compensate_many([step("a").undo(), step("b").undo()]) == [{"released": {}}, {"released": {}}]


def test_a_key_that_was_undone_takes_nothing_any_more(shelf):
    agent.perform_many([step("a", MUG_BLUE=2).request()])
    agent.compensate_many([step("a").undo()])

    [refusal] = agent.perform_many([step("a", MUG_BLUE=2).request(attempt=2)])

    assert isinstance(refusal, PermanentFailure)
    assert available()["MUG-BLUE"] == 50


@pytest.fixture
def committed_shelf(transactional_db):
    Product.objects.create(sku="MUG-BLUE", name="Blue mug", price="12.90", available=50)
    Product.objects.create(sku="MUG-RED", name="Red mug", price="12.90", available=1000)


def in_own_transaction(work):
    try:
        with transaction.atomic():
            return work()
    finally:
        connection.close()


def test_two_hundred_buyers_of_fifty_pieces_get_exactly_fifty(committed_shelf):
    start = threading.Barrier(8)

    def cohort(number):
        start.wait(10)
        requests = [step(f"{number}-{buyer}", MUG_BLUE=1).request() for buyer in range(5)]
        return in_own_transaction(lambda: agent.perform_many(requests))

    with ThreadPoolExecutor(8) as pool:
        results = [result for cohort_results in pool.map(cohort, range(40)) for result in cohort_results]

    assert len(results) == 200
    assert sum(isinstance(result, dict) for result in results) == 50
    assert available()["MUG-BLUE"] == 0
    assert StockReservation.objects.filter(sku="MUG-BLUE", released_at=None).count() == 50


def test_cohorts_that_take_and_give_back_at_once_never_deadlock(committed_shelf):
    Product.objects.filter(sku="MUG-BLUE").update(available=1000)

    def cohort(number):
        # Half of the cohorts list the products in the reverse order.
        lines = {"MUG_BLUE": 1, "MUG_RED": 1} if number % 2 else {"MUG_RED": 1, "MUG_BLUE": 1}
        in_own_transaction(lambda: agent.perform_many([step(f"{number}-{i}", **lines).request() for i in range(5)]))
        in_own_transaction(lambda: agent.compensate_many([step(f"{number}-{i}").undo() for i in range(5)]))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(cohort, range(40)))

    assert available() == {"MUG-BLUE": 1000, "MUG-RED": 1000}


def test_one_key_in_two_transactions_takes_once(committed_shelf):
    start = threading.Barrier(2)

    def attempt(number):
        start.wait(10)
        return in_own_transaction(lambda: agent.perform_many([step("a", MUG_BLUE=2).request(attempt=number)]))

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(attempt, (1, 2)))

    assert results == [[{"reserved": {"MUG-BLUE": 2}}]] * 2
    assert available()["MUG-BLUE"] == 48
