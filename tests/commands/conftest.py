"""Fixtures of the commands' tests: a catalogue, orders in several states, and a way to call commands."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command

from orders.models import Product
from supervision import testing
from supervision.intake import submission
from supervision.models import DeadLetter
from tests.support import console


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
    return console.mug(available=100)


@pytest.fixture
def an_order(mug: Product, manage: Manage) -> str:
    """An order that is consumed and whose first step is claimed; no agent works on it."""
    return console.place()[0].public_id


@pytest.fixture
def an_order_in_error(mug: Product, manage: Manage) -> str:
    """An order in Error: its stock is reserved, its card was refused."""
    return console.fail(email="grace@example.com", message="card_declined: the card was refused")[0].public_id


@pytest.fixture
def a_dead_letter(db: None, manage: Manage) -> DeadLetter:
    """The dead letter of a submission whose payload is no order."""
    submission.accept([submission.NewSubmission(public_id="broken", workflow="fulfil-order", payload='{"not": "an order"}')])
    testing.schedule()
    return DeadLetter.objects.get()
