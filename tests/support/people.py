"""Fixtures of the console's tests, imported by the folders that use them: signed-in clients, and no hints."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.test import Client

from supervision import testing
from tests.support.console import person


@pytest.fixture
def no_hints() -> Iterator[None]:
    """Send no hints to a broker: these tests do the scheduler's work themselves."""
    with testing.quiet():
        yield


@pytest.fixture
def operator(client: Client) -> Client:
    """A client that is signed in as an operator."""
    client.force_login(person("olga", "operator"))
    return client


@pytest.fixture
def viewer() -> Client:
    """A client that is signed in as a viewer, who may read and not act."""
    client = Client()
    client.force_login(person("vera", "viewer"))
    return client
