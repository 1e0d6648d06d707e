"""Fixtures of the console's tests, imported by the folders that use them: who is signed in, and nobody else listening."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.test import Client

from supervision import testing
from tests.support.console import person


@pytest.fixture
def no_hints() -> Iterator[None]:
    """No broker hears of what these tests place: the tests do the scheduler's work themselves."""
    with testing.quiet():
        yield


@pytest.fixture
def operator(client: Client) -> Client:
    """An operator's browser."""
    client.force_login(person("olga", "operator"))
    return client


@pytest.fixture
def viewer() -> Client:
    """The browser of somebody who may look and not act."""
    client = Client()
    client.force_login(person("vera", "viewer"))
    return client
