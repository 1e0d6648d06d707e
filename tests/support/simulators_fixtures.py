"""Fixtures around one simulators process per session: import them into a conftest or a test module.

Each test uses its own orders and leaves no fault switched on.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.support.simulators import Simulators


@pytest.fixture(scope="session")
def simulators_process(tmp_path_factory) -> Iterator[Simulators]:
    with Simulators.started(tmp_path_factory.mktemp("simulators") / "ledger.jsonl") as simulators:
        yield simulators


@pytest.fixture
def simulators(simulators_process) -> Iterator[Simulators]:
    """Payment, carrier and mail, healthy; the fixture clears faults and restores their behaviour after the test."""
    usual = simulators_process.http.get(f"{simulators_process.url}/behaviour").json()
    yield simulators_process
    simulators_process.clear()
    simulators_process.behave(**usual)
    simulators_process.tell("")
    simulators_process.tell("", "carrier")


@pytest.fixture
def services(simulators, settings) -> Simulators:
    """The simulators, with the shop's settings pointing at them."""
    for name, value in simulators.settings().items():
        setattr(settings, name, value)
    return simulators


@pytest.fixture
def order() -> str:
    """A new public id for an order."""
    return uuid.uuid4().hex
