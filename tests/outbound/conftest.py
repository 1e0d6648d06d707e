"""The engine's fixtures, webhook receivers, and an outbox that is empty before and after each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.engine.conftest import engine, noted, store_database, tuned
from tests.outbound import kit
from tests.support.people import operator, viewer


@pytest.fixture
def out(engine: None, settings: Any, tuned: Any) -> Iterator[None]:
    """An empty store; webhooks may go to addresses of this machine."""
    tuned(LINGER_SECONDS=10.0)  # an order runs to its end without further messages, also on a busy machine
    settings.WEBHOOK_ALLOW_PRIVATE = True
    kit.empty()
    yield
    kit.empty()


@pytest.fixture
def receivers() -> Iterator[Callable[[], kit.Receiver]]:
    """A function that makes receivers."""
    made: list[kit.Receiver] = []

    def make() -> kit.Receiver:
        made.append(kit.Receiver())
        return made[-1]

    yield make
    for receiver in made:
        receiver.close()


@pytest.fixture
def receiver(receivers: Callable[[], kit.Receiver]) -> kit.Receiver:
    """One receiver."""
    return receivers()


__all__ = ["engine", "noted", "operator", "store_database", "tuned", "viewer"]
