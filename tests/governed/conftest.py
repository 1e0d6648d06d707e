"""The engine's fixtures and a shop of forked workers, for tests that need several processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.crash.lane import Lane, open_lane
from tests.engine.conftest import engine, store_database, tuned


@pytest.fixture(scope="module")
def lane(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lane]:
    """A shop for one test module, with the settings in the module's LANE."""
    with open_lane(tmp_path_factory.mktemp("lane"), **getattr(request.module, "LANE", {})) as running:
        yield running


__all__ = ["engine", "lane", "store_database", "tuned"]
