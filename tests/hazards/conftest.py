"""The engine's fixtures and a shop of forked workers, for the hazards' tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.crash.lane import Lane, open_lane
from tests.engine.conftest import engine, first_epoch, store_database, tuned


@pytest.fixture(scope="module")
def lane(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lane]:
    """A shop for one test module, with the settings in the module's LANE."""
    with open_lane(tmp_path_factory.mktemp("lane"), **getattr(request.module, "LANE", {})) as running:
        yield running


__all__ = ["engine", "first_epoch", "lane", "store_database", "tuned"]
