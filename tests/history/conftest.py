"""The engine's store, with a chain that begins anew in each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from supervision.history import linking
from tests.engine.conftest import engine, no_hints, store_database, tuned

__all__ = ["engine", "no_hints", "store_database", "tuned"]


@pytest.fixture(autouse=True)
def from_the_start(engine: None) -> Iterator[None]:
    linking.forget()
    yield
    linking.forget()
