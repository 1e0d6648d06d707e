"""The engine's fixtures, webhook receivers, and an outbox that is empty before and after each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from supervision.postgres import db
from tests.engine.conftest import engine, noted, store_database, tuned
from tests.outbound import kit
from tests.support.people import operator, viewer
from tests.support.silent_names import silent


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


@pytest.fixture
def here(engine: None, settings: Any) -> Iterator[None]:
    """The shop's address. Channels may be on this machine."""
    settings.WEBHOOK_ALLOW_PRIVATE, settings.PUBLIC_URL = True, "https://shop.example"
    yield
    db.run("DELETE FROM auth_user_groups")


@pytest.fixture
def sink() -> Iterator[kit.Sink]:
    """A receiver of a channel's messages."""
    made = kit.Sink()
    yield made
    made.server.shutdown()
    made.server.server_close()


__all__ = ["engine", "noted", "operator", "silent", "store_database", "tuned", "viewer"]
