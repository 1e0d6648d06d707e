"""The simulators' process does not pause when it holds much data, so that it can serve in measurements."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from orders.simulators.server import spare_what_is_remembered


@pytest.fixture
def collector() -> Iterator[None]:
    before = gc.get_threshold()
    gc.freeze()  # what the other tests have loaded: a process of its own would not have it
    gc.collect()  # it counts what is left; how much that is decides when the next full collection comes
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


def full_collections(remembered: int) -> int:
    before = gc.get_stats()[2]["collections"]
    kept = [{"entry": [number]} for number in range(remembered)]
    assert len(kept) == remembered
    return int(gc.get_stats()[2]["collections"]) - before


@pytest.mark.usefixtures("collector")
def test_nothing_looks_at_all_that_is_remembered_again_and_again() -> None:
    entries = max(100_000, 4 * len(gc.get_objects()))
    assert full_collections(entries) > 0, "Python's collector does so by default"

    spare_what_is_remembered()

    assert full_collections(entries) == 0
