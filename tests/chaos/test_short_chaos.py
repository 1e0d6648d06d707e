"""A short chaos run: twenty seconds of kills, restarts and lost messages on the embedded default."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from sasproject.roles import ROOT


@pytest.mark.timeout(360)
def test_a_shop_keeps_its_promises_through_twenty_seconds_of_faults(tmp_path: Path) -> None:
    directory = tmp_path / "chaos"
    command = ["--minutes", "0.35", "--seed", "1", "--broker", "pgmq", "--rate", "3", "--directory", str(directory)]

    run = subprocess.run([sys.executable, "-m", "chaos", *command], cwd=ROOT, capture_output=True, text=True, timeout=340, check=False)

    assert run.returncode == 0, run.stdout + run.stderr
    numbers = json.loads((directory / "report.json").read_text())
    assert numbers["orders"] > 30
    assert sum(numbers["faults"].values()) >= 5
    assert set(numbers["violations"].values()) == {0}
    print(run.stdout)
