"""Random graphs in random order of events keep every rule (`graphs`). SIMULATION_GRAPHS sets how many scenarios each part plays."""

from __future__ import annotations

import os

import pytest

from supervision import workflow as definitions
from tests.engine.conftest import empty_the_store
from tests.simulation import graphs

PARTS = 4
SCENARIOS = int(os.environ.get("SIMULATION_GRAPHS", "10"))
SEED = int(os.environ.get("SIMULATION_SEED", "20261123"))


@pytest.mark.timeout(86_400)
@pytest.mark.parametrize("part", range(PARTS))
def test_random_graphs_keep_every_rule(simulated, monkeypatch, part):
    monkeypatch.setattr(definitions, "_workflows", dict(definitions._workflows))
    monkeypatch.setattr(definitions, "_newest", dict(definitions._newest))
    ends = set()
    for number in range(SCENARIOS):
        seed = SEED + PARTS * number + part
        empty_the_store()
        try:
            ends |= set(graphs.play(seed, events=60))
        except BaseException:
            print(f"SIMULATION_SEED={seed} SIMULATION_GRAPHS=1 repeats this scenario as part 0")
            raise
    assert ends <= {"Processed", "Cancelled"}
