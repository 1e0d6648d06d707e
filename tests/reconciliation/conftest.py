"""A shop with real commits and its own simulated services, so that other tests leave no unknown charges there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from orders.gateways import http
from orders.models import Product
from supervision import testing
from supervision.dispatch import scheduler
from supervision.ledger import reconciliation
from supervision.models import Finding
from tests.engine import kit
from tests.engine.conftest import emptied, store_database
from tests.support.requests import PAYLOAD
from tests.support.simulators import Simulators

__all__ = ["store_database"]

SHOPS = ("orders_orderline", "orders_order", "orders_stockreservation", "orders_product")
OURS = ("supervision_finding", "supervision_reconciliation", "supervision_journalentry", *SHOPS)


@pytest.fixture(scope="module")
def own_simulators(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Simulators]:
    with Simulators.started(tmp_path_factory.mktemp("simulators") / "ledger.jsonl") as simulators:
        yield simulators


@pytest.fixture
def services(own_simulators: Simulators, settings: Any) -> Iterator[Simulators]:
    """Payment and carrier, healthy. The search of payments lags, so that code which relies on it fails its test."""
    for name, value in own_simulators.settings().items():
        setattr(settings, name, value)
    own_simulators.behave(search_lag=3600, refund_settles=3600)
    yield own_simulators
    own_simulators.clear()


@pytest.fixture
def shop(store_database: None, django_db_blocker: Any, services: Simulators, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty store, a product, no broker: the process that reports a late answer also performs the next step."""
    monkeypatch.setattr(scheduler, "dispatch", testing.perform)
    with emptied(django_db_blocker, *OURS):
        Product.objects.create(sku="MUG-BLUE", name="Blue mug", price="12.90", available=10_000)
        yield


@pytest.fixture
def budget(shop: None) -> Iterator[None]:
    """Give the gateways a time budget."""
    with http.budget(time.monotonic() + 120):
        yield


def rest(key: str, ends: str) -> None:
    """Perform an order's steps until it has this state. A slow call goes on in a thread meanwhile."""

    def ended() -> bool:
        testing.run_until_idle()
        return bool(testing.run_of(key).process_state == ends)

    kit.until(ended)


@pytest.fixture
def buy(shop: None) -> Callable[..., str]:
    """Place an order of 25.80 EUR and perform it to its end; returns its public id."""

    def call(ends: str = "Processed", **changes: Any) -> str:
        key = testing.submit("fulfil-order", {**PAYLOAD, **changes})
        rest(key, ends)
        return key

    return call


@pytest.fixture
def found(shop: None) -> Callable[..., list[Finding]]:
    """Compare with the services; returns the open findings about these orders."""

    def call(*orders: str, service: str = "payment", **how: Any) -> list[Finding]:
        reconciliation.compare(service, **how)
        return [row for row in reconciliation.findings(service) if row.order_key in orders]

    return call
