"""The shop's export to accounting: the files contain an event of an order if and only if it was committed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction

from orders import accounting, intake, services
from orders.models import Order, OrderLine, Product, StockReservation
from supervision import testing
from supervision.execution import runner
from supervision.governance import circuit_breaker
from supervision.journal import entries
from supervision.journal.writer import Writer
from supervision.operations import operator_verbs, pauses
from supervision.workflow import AcceptedRun
from tests.engine.conftest import empty_the_store
from tests.engine.kit import fetch
from tests.journal.kit import acknowledged, waiting
from tests.orders.test_intake import accepted
from tests.shopping import a_product, a_request
from tests.support.simulators import Simulators


@pytest.fixture
def shop(journal_dir: Path, services: Simulators) -> Iterator[Simulators]:
    """A product, services that answer, and an empty store with real commits."""
    empty_the_store()
    circuit_breaker.forget()
    runner.process.reset()
    a_product()
    yield services
    for model in (OrderLine, Order, StockReservation, Product):
        model.objects.all().delete()
    empty_the_store()


@pytest.fixture
def ends(eventually: Any) -> Any:
    """`ends(key, "Processed")` performs all due work until the order has that state."""

    def there(key: str, state: str) -> str:
        def work() -> bool:
            testing.make_due()
            testing.run_until_idle()
            return bool(testing.run_of(key).process_state == state)

        eventually(work, what=f"{key} {state}")
        return key

    return there


def bought(**changes: Any) -> str:
    return str(services.place_order(a_request(**changes), account=None).public_id)


def told(directory: Path, kind: str) -> list[dict[str, str]]:
    """Flush; returns what accounting reads of one kind of event."""
    Writer().flush(accounting.KEY)
    fetch("UPDATE supervision_writerlease SET until = now()")
    return acknowledged(directory, kind)


def test_accounting_hears_of_an_order_when_it_is_received_and_when_it_is_processed(shop, journal_dir, ends):
    key = ends(bought(), "Processed")

    number = Order.objects.get().number
    [received], [processed] = told(journal_dir, "order.received"), told(journal_dir, "order.processed")
    assert list(received) == [
        "event_id", "recorded_at", "order", "number", "placed_at", "country", "pieces", "total", "currency",
    ]  # fmt: skip
    assert received["order"] == key
    assert received["event_id"] == f"{key}:received"
    assert (received["number"], received["country"]) == (number, "IT")
    assert (received["pieces"], received["total"], received["currency"]) == ("2", "25.80", "EUR")
    [charge] = [entry for entry in shop.ledger("payment", key) if entry["operation"] == "confirm"]
    assert list(processed) == ["event_id", "recorded_at", "order", "number", "total", "currency", "charge", "shipment"]
    assert (processed["number"], processed["total"], processed["currency"]) == (number, "25.80", "EUR")
    assert processed["charge"].startswith("pi_")
    assert processed["charge"] in str(charge)
    assert processed["shipment"].startswith("shp_")
    assert told(journal_dir, "order.cancelled") == []


def test_accounting_hears_that_money_was_given_back(shop, journal_dir, ends):
    shop.faults("carrier", "decline")
    key = ends(bought(), "Error")
    operator_verbs.compensate(key, by="olga", reason="cannot be delivered")
    shop.clear()
    ends(key, "Cancelled")

    [cancelled], [refunded] = told(journal_dir, "order.cancelled"), told(journal_dir, "order.refunded")
    assert (cancelled["order"], cancelled["total"], cancelled["refunded"]) == (key, "25.80", "true")
    assert refunded["charge"].startswith("pi_")
    assert (refunded["order"], refunded["total"], refunded["currency"]) == (key, "25.80", "EUR")
    assert shop.charged(key) == 0
    assert told(journal_dir, "order.processed") == []


def test_an_order_that_is_charged_after_the_booking_is_told_with_its_charge_and_given_back_once(shop, journal_dir, ends, settings):
    settings.SHOP_CAPTURE = "after-booking"
    charged = ends(bought(), "Processed")
    pauses.pause("agent", "email", reason="let it be charged and not end", by="olga")
    back = bought()
    testing.run_until_idle()
    assert shop.charged(back) == 2580
    operator_verbs.cancel(back, by="olga", reason="changed their mind")
    pauses.lift("agent", "email", by="olga", reason="go on")
    ends(back, "Cancelled")
    shop.faults("carrier", "decline")
    released = ends(bought(), "Error")
    operator_verbs.compensate(released, by="olga", reason="cannot be delivered")
    shop.clear()
    ends(released, "Cancelled")

    [processed], [refunded] = told(journal_dir, "order.processed"), told(journal_dir, "order.refunded")
    assert (processed["order"], processed["charge"]) == (charged, testing.step(charged, "capture-payment").result["intent"])
    assert (refunded["order"], refunded["charge"]) == (back, testing.step(back, "capture-payment").result["intent"])
    cancelled = {row["order"]: row["refunded"] for row in told(journal_dir, "order.cancelled")}
    assert cancelled == {back: "true", released: "false"}


def test_an_order_that_ended_before_it_was_paid_has_nothing_to_give_back(shop, journal_dir, ends):
    key = bought()
    Product.objects.update(available=0)
    ends(key, "Cancelled")

    [cancelled] = told(journal_dir, "order.cancelled")
    assert cancelled["refunded"] == "false"
    assert told(journal_dir, "order.refunded") == []


def test_what_did_not_happen_is_not_told(shop):
    with transaction.atomic():
        intake.write([accepted(1)])
        assert waiting() == ["key-1:received"]
        transaction.set_rollback(True)

    assert waiting() == []


def test_a_batch_of_orders_is_one_statement(shop, monkeypatch):
    calls: list[int] = []
    monkeypatch.setattr(entries.db, "run", _counting(entries.db.run, calls))

    intake.write([accepted(number) for number in range(1, 51)])

    assert calls == [50]


def test_every_order_that_is_written_is_told_of_even_when_its_batch_is_tried_again(shop):
    """The event's id contains its order's id, so a process that repeats a commit whose answer was lost appends it once."""
    runs: list[AcceptedRun] = [accepted(1)]
    for _ in range(2):
        entries.append(accounting.KEY, accounting.received(runs, ["1"]))

    assert waiting() == ["key-1:received"]


def _counting(really: Any, calls: list[int]) -> Any:
    def run(statement: str, params: Any = None, **more: Any) -> Any:
        if "supervision_journalentry" in statement:
            calls.append(len(params["ids"]))
        return really(statement, params, **more)

    return run
