"""The drills of failover and restore in short: a real primary is killed, and a whole shop goes on with a replica or a restored copy."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos import drills
from supervision.embedded.binaries import find_binaries
from tests import services

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """The drill with less time to warm up, and no bound on how long it takes."""
    found = find_binaries()
    services.require_service("pg_basebackup", Path(found["pg_basebackup"]).exists(), "set SAS_PG_BIN to a PostgreSQL that has it")
    monkeypatch.setattr(drills, "WARM_SECONDS", 2.0)
    monkeypatch.setattr(drills, "WITHIN_SECONDS", 30.0)  # the drill itself measures, on a machine that does nothing else


@pytest.mark.nightly
def test_a_shop_outlives_its_primary_and_loses_no_accepted_order(tmp_path: Path, short: None):
    figures, wrong = drills.failover(tmp_path, rate=5.0, synchronous=True, broker="pgmq", seconds=4.0)

    assert wrong == []
    assert figures["accepted orders lost"] == 0
    assert figures["processes that ended"] == 0
    assert figures["connections without a name"] == []


@pytest.mark.nightly
def test_a_restore_to_a_point_in_time_keeps_what_was_accepted_before_it_and_settles_the_rest(tmp_path: Path, short: None):
    figures, wrong = drills.restore(tmp_path, rate=5.0, broker="pgmq", lost_seconds=2.0)

    assert wrong == []
    assert figures["accepted orders lost and repeated"] > 0
    assert figures["settled"] == sum(figures["findings of reconcile"].values())


@pytest.mark.nightly
def test_a_restore_to_an_earlier_moment_is_told(tmp_path: Path, short: None, monkeypatch: pytest.MonkeyPatch):
    earlier = "SELECT (clock_timestamp() - interval '1 s')::text"
    monkeypatch.setattr(drills, "_MOMENT", earlier)

    _figures, wrong = drills.restore(tmp_path, rate=5.0, broker="pgmq", lost_seconds=2.0)

    assert [one.partition(" ")[2] for one in wrong] == ["orders that were accepted before the moment are lost"]


@pytest.mark.nightly
def test_what_a_replica_that_fell_behind_has_lost_is_found_and_settled(tmp_path: Path, short: None):
    figures, wrong = drills.failover(tmp_path, rate=5.0, synchronous=False, broker="pgmq", seconds=4.0)

    assert wrong == []
    assert figures["accepted orders lost"] > 0
    assert figures["findings of reconcile"], "calls were made for orders that the database no longer knows"
    assert figures["processes that ended"] == 0
