"""The engine's fixtures (real commits, one clean store per test), and accounts for the console."""

from __future__ import annotations

from typing import Any

import pytest

from supervision.worker import heartbeats
from tests.engine.conftest import engine, store_database, tuned
from tests.support.people import no_hints, operator, viewer

__all__ = ["engine", "no_hints", "operator", "store_database", "tuned", "viewer"]


@pytest.fixture
def everybody_works(engine: None) -> None:
    """Write fresh heartbeats of processes that serve every queue."""
    queues = ["submissions", "scheduler", "supervisor", *(f"agent.{name}" for name in ("alpha", "beta", "gamma"))]
    heartbeats.beat("all", {"queues": queues}, name="all@here")


@pytest.fixture
def hinted(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Collect the hints instead of sending them."""
    sent: list[Any] = []
    monkeypatch.setattr("supervision.wakeup.hints.send", sent.append)
    return sent
