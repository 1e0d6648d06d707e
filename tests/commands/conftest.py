"""Fixtures of the commands' tests: a catalogue, orders in several states, and a way to call commands."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command

from orders import services
from orders.models import Product
from supervision import testing
from supervision.recovery import failures
from supervision.retry import Failure, Outcome
from supervision.store import step_verbs

REQUEST = {
    "email": "ada@example.com",
    "shipping_address": {"name": "Ada L.", "line1": "Via Roma 1", "city": "Torino", "postal_code": "10121", "country": "IT"},
    "lines": [{"sku": "MUG-BLUE", "quantity": 2}],
    "payment_method": "pm_card_visa",
}


@dataclass(frozen=True)
class Said:
    """What a command wrote."""

    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


Manage = Callable[..., Said]


@pytest.fixture
def manage() -> Iterator[Manage]:
    """`manage("orders", "--json")`: what it wrote; a CommandError is raised."""

    def call(name: str, *arguments: object) -> Said:
        out, err = StringIO(), StringIO()
        call_command(name, *map(str, arguments), stdout=out, stderr=err)
        return Said(out.getvalue(), err.getvalue())

    with testing.quiet():
        yield call


@pytest.fixture
def mug(db: None) -> Product:
    return Product.objects.create(sku="MUG-BLUE", name="Blue mug", price="12.90", available=100)


def place_an_order(**changes: Any) -> str:
    """Accept one order, as the API does."""
    return services.place_order({**REQUEST, **changes}, account=None).public_id


@pytest.fixture
def an_order(mug: Product, manage: Manage) -> str:
    """An order that is consumed and whose first step is claimed; no agent works on it."""
    public_id = place_an_order()
    testing.schedule()
    return public_id


@pytest.fixture
def an_order_in_error(mug: Product, manage: Manage) -> str:
    """An order in Error: its stock is reserved, its card was refused."""
    public_id = place_an_order(email="grace@example.com")
    ((stock, claims),) = testing.schedule()
    reserved = step_verbs.start(stock, claims)
    claims = step_verbs.finish_at(stock)([(reserved[0], {})]).claims
    payment = stock.following
    started = step_verbs.start(payment, claims)
    refused = Failure(outcome=Outcome.PERMANENT, message="card_declined: the card was refused", code="card_declined")
    failures.fail(payment, [(started[0].claim, refused)])
    return public_id
