"""Charges and shipments of orders whose answers were lost, through the engine and at the simulated services.

The engine finds an order's effects under every key that the order ever had. No effect is made twice or outlives a cancel.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

import orders.workflows  # noqa: F401 - registers the shop's agents
from orders.agents.payment_calls import listing as charges
from orders.agents.shipping import listing as shipments
from supervision import PermanentFailure, RetryPolicy, Step, Workflow, register
from supervision.execution import runner
from supervision.intake import consuming
from supervision.operations import operator_verbs
from supervision.recovery import supervisor
from supervision.runtime import failpoints
from supervision.testing import expire, make_due, run_until_idle, submit
from tests.engine import kit
from tests.support import toy
from tests.support.history import rewrite
from tests.support.requests import ADDRESS, PAYLOAD

pytestmark = pytest.mark.usefixtures("engine")

ONCE = RetryPolicy(threshold=1)
BUYING = register(
    Workflow(
        "buying",
        (
            Step("charge-payment", agent="payment", complete_within=timedelta(seconds=20)),
            Step("book-shipment", agent="shipping", complete_within=timedelta(seconds=20), retry=ONCE, amendable=("shipping_address",)),
            Step("alpha-step", agent="alpha", complete_within=timedelta(seconds=20), retry=ONCE),
        ),
        intake=toy.INTAKE,
    )
)


@pytest.fixture(autouse=True)
def no_failpoint_left() -> Iterator[None]:
    yield
    failpoints.load({})


def lose_the_answer_of(step: str) -> None:
    """The next call at this step has its effect, and its answer is lost."""
    failpoints.load({"FAILPOINTS": "agent.after_effect=raise@1", "FAILPOINT_STEP": step, "ALLOW_FAILPOINTS": "1"})


def work(key: str) -> str:
    """Run scheduler, agents and sweeps until the order has ended or is in Error; returns its state."""
    for _ in range(50):
        run_until_idle()
        runner.process.finish_up(20)  # calls that took longer than their cohort waited
        if (state := kit.state(key)) in ("Processed", "Error", "Cancelled"):
            return state
        # A late answer sends the next step to a broker that delivers nothing here, so the claim has to expire.
        expire(key)
        make_due(key)
        supervisor.sweep_once()
    raise AssertionError("the order does not come to rest")


refuse = kit.raising(PermanentFailure("no"))


def live(services: Any, key: str) -> int:
    return services.effects("carrier", "create", key) - services.effects("carrier", "delete", key)


def test_a_cancel_deletes_the_shipments_of_every_generation(services):
    lose_the_answer_of("book-shipment")
    key = submit("buying", {**PAYLOAD, "n": 1})
    assert (work(key), live(services, key)) == ("Error", 1)
    toy.ALPHA.on_perform = refuse

    corrected = {**ADDRESS, "line1": "Via Roma 2"}
    operator_verbs.resubmit(key, by="olga", reason="wrong address", new_generation=True, amend={"shipping_address": corrected})
    work(key)
    once_booked = live(services, key)
    operator_verbs.cancel(key, by="olga", reason="the customer called")

    assert work(key) == "Cancelled"
    assert services.charged(key) == 0
    assert live(services, key) == 0
    assert once_booked == 1
    assert kit.healthy()


TABLES = ("submission", "run", "stepstate", "stepevent")


def back_up() -> None:
    kit.fetch(";".join(f"CREATE TEMP TABLE saved_{table} AS TABLE supervision_{table}" for table in TABLES))


def restore() -> None:
    """Put the saved rows back on another timeline. The services keep their effects and forget the old keys."""
    for table in (*TABLES, "effect"):
        rewrite(f"DELETE FROM supervision_{table}")  # noqa: S608 - the names above
    for table in TABLES:
        kit.fetch(f"INSERT INTO supervision_{table} OVERRIDING SYSTEM VALUE TABLE saved_{table}; DROP TABLE saved_{table}")
    kit.fetch("UPDATE supervision_epoch SET timeline = timeline - 1")
    for listing in (charges, shipments):
        listing.forget()
    supervisor.sweep_once()


@pytest.mark.usefixtures("first_epoch")
def test_a_restored_order_is_neither_charged_nor_shipped_again_though_the_services_forgot_its_keys(services):
    key = submit("buying", {**PAYLOAD, "n": 1})
    consuming.consume_batch(10, born=False)
    back_up()
    assert work(key) == "Processed"
    services.behave(search_lag=3600)
    services.forget("payment")
    services.forget("carrier")

    restore()

    assert work(key) == "Processed"
    assert (services.charged(key), services.effects("payment", "confirm", key), live(services, key)) == (2580, 1, 1)
    assert kit.healthy()


@pytest.mark.usefixtures("first_epoch")
def test_a_restored_order_that_is_cancelled_before_it_begins_again_leaves_nothing_outside(services):
    key = submit("buying", {**PAYLOAD, "n": 1})
    back_up()
    assert work(key) == "Processed"
    services.behave(search_lag=3600)

    restore()
    operator_verbs.cancel(key, by="olga", reason="the customer called")

    assert work(key) == "Cancelled"
    assert (services.charged(key), live(services, key)) == (0, 0)
    assert kit.healthy()
