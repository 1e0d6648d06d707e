"""Fixtures around one simulators process per session: import them into a conftest or a test module.

Each test uses orders of its own and leaves no fault behind.
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
    """Payment, carrier and mail, healthy at the start and healed at the end."""
    usual = simulators_process.http.get(f"{simulators_process.url}/behaviour").json()
    yield simulators_process
    simulators_process.clear()
    simulators_process.behave(**usual)


@pytest.fixture
def services(simulators, settings) -> Simulators:
    """The same, with the shop's settings pointing at it."""
    for name, value in simulators.settings().items():
        setattr(settings, name, value)
    return simulators


@pytest.fixture
def order() -> str:
    """An order's public id that nobody used before."""
    return uuid.uuid4().hex
