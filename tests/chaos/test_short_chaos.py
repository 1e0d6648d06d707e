"""A short chaos run: twenty seconds of kills, restarts and lost messages on the embedded default."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from chaos.run import Options, run


@pytest.mark.timeout(1080)
def test_a_shop_keeps_its_promises_through_twenty_seconds_of_faults(tmp_path: Path) -> None:
    """The run starts its processes as the other tests do: forked from one that has imported the libraries."""
    assert run(Options(minutes=0.35, seed=1, broker="pgmq", rate=3.0, complete_by=5.0, directory=tmp_path)) == 0

    numbers = json.loads((tmp_path / "report.json").read_text())
    assert numbers["orders"] > 30
    assert sum(numbers["faults"].values()) >= 5
    assert set(numbers["violations"].values()) == {0}
