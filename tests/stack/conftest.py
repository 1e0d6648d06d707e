"""A migrated database, and a copy of it for one test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from chaos.shop import scratch_database
from tests.support.migrating import manage


@pytest.fixture(scope="module")
def migrated() -> Iterator[str]:
    """The name of a migrated database, to copy: the session's template, where the session made one."""
    if template := os.environ.get("TEST_TEMPLATE"):
        yield template
        return
    with scratch_database() as url:
        assert manage(url, "migrate", "-v0").returncode == 0
        yield urlsplit(url).path.removeprefix("/")


@pytest.fixture
def url(migrated: str) -> Iterator[str]:
    """A copy of it."""
    with scratch_database(migrated) as copy:
        yield copy
