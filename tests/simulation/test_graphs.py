"""Random graphs in random order of events keep every rule (`graphs`). SIMULATION_GRAPHS sets how many scenarios each part plays."""

from __future__ import annotations

import os
import time

import pytest

from supervision import testing
from supervision import workflow as definitions
from supervision.audit import registry
from tests.engine.conftest import empty_the_store
from tests.simulation import audit_at_once, graphs
from tests.support.history import rewrite

PARTS = 4
AT_ONCE = 4  # scenarios side by side in one store
SCENARIOS = int(os.environ.get("SIMULATION_GRAPHS", "12"))
SEED = int(os.environ.get("SIMULATION_SEED", "20261123"))


@pytest.fixture
def only_graphs(simulated: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """No workflow but those of the test: each store registers the workflows anew."""
    monkeypatch.setattr(definitions, "_workflows", {})
    monkeypatch.setattr(definitions, "_newest", {})


@pytest.mark.timeout(86_400)
@pytest.mark.parametrize("part", range(PARTS))
def test_random_graphs_keep_every_rule(only_graphs, part):
    ends, began = set(), time.monotonic()
    for number in range(-(-SCENARIOS // AT_ONCE)):
        seed = SEED + PARTS * number + part
        empty_the_store()
        try:
            ends |= set(graphs.play(seed, events=60, graphs=AT_ONCE))
        except BaseException:
            print(f"SIMULATION_SEED={seed} SIMULATION_GRAPHS={AT_ONCE} repeats these scenarios as part 0")
            raise
        if number % 50 == 49:
            done, seconds = (number + 1) * AT_ONCE, time.monotonic() - began
            print(f"part {part}: {done} of {SCENARIOS} scenarios, {done / seconds:.1f} a second, no violation", flush=True)
    assert ends <= {"Processed", "Cancelled"}


@pytest.mark.parametrize("broken", ["DELETE FROM supervision_stepevent WHERE seq = 2", "UPDATE supervision_stepstate SET effect = 'none'"])
def test_the_audit_of_the_simulation_finds_what_the_audit_finds(only_graphs, broken):
    graphs.play(SEED, events=30, graphs=2)
    assert audit_at_once.violations() == []

    testing.submit_many(graphs.NAME.format(0), [{"n": 1}, {"n": 2}])
    for _ in range(3):
        for place, claims in testing.schedule():
            testing.perform(place, claims)
    rewrite(broken)

    found = {violation.partition(": ")[0] for violation in audit_at_once.violations()}
    assert found == {violation.invariant for violation in registry.violations() if not violation.invariant.startswith("an order")}
    assert found
