"""The supervisor role as the Procfile starts it: several processes write the journal and end cleanly."""

from __future__ import annotations

import csv
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.lane import Lane, open_lane


@pytest.fixture
def lane(tmp_path: Path) -> Iterator[Lane]:
    (tmp_path / "lane").mkdir()
    with open_lane(tmp_path / "lane", JOURNAL_DIR=str(tmp_path / "journal")) as running:
        yield running


@pytest.mark.nightly
def test_orders_are_in_the_export_once_with_several_supervisors_and_at_once_when_they_end(lane: Lane, tmp_path: Path) -> None:
    lane.all_work()
    lane.work("supervisor.2")
    keys = [lane.buy() for _ in range(3)]
    for key in keys:
        lane.ends(key, "Processed")

    # On SIGTERM each process flushes the waiting events and gives its leases back.
    for name in ("supervisor", "supervisor.2"):
        os.kill(lane.pid(name), signal.SIGTERM)
        assert lane.processes[name].wait(30) == 0, lane.log(name)

    assert lane.rows("SELECT count(*) FROM supervision_journalentry WHERE written_at IS NULL") == [(0,)]
    assert lane.rows("SELECT 1 FROM supervision_writerlease WHERE until > now()") == []
    for kind in ("received", "processed"):
        rows: list[dict[str, str]] = []
        for path in (tmp_path / "journal" / "accounting").glob(f"order.{kind}-*.csv"):
            with path.open(newline="") as opened:
                rows += csv.DictReader(opened)
        assert sorted(row["order"] for row in rows) == sorted(keys)
    assert "files are whole" in lane.manage("journal", "verify")
