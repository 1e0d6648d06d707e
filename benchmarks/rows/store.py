"""What claims and sweeps cost: beside many finished rows, and while another transaction holds an old snapshot."""

from __future__ import annotations

import json
import sys
from functools import partial

from benchmarks import systems
from benchmarks.children import Command
from benchmarks.lab import Lab
from benchmarks.plan import Entry, Facts, Profile, Row
from benchmarks.stage import stage

FEW = 1_000


def _costs(words: tuple[str, ...], lab: Lab, profile: Profile) -> Facts:
    with stage(lab, systems.OURS) as play:
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.noop.store_costs", *words]
        said = play.group.run(Command("costs", command, systems.OURS.environment(lab, slow=False)))
        return dict(json.loads(said.splitlines()[-1]))


def _entries(profile: Profile) -> list[Entry]:
    def entry(name: str, title: str, *words: str) -> Entry:
        return Entry(name, title, partial(_costs, words))

    return [
        entry("few", f"{FEW:,} finished steps", "finished", str(FEW)),
        entry("many", f"{profile.finished:,} finished steps", "finished", str(profile.finished)),
        entry("free", f"{profile.snapshot:,} orders go by", "snapshot", str(profile.snapshot)),
        entry("held", f"{profile.snapshot:,} orders go by, a snapshot is held", "snapshot", str(profile.snapshot), "held"),
    ]


ROW = Row("store", "Claim of 200, sweep of 1,000 expired", _entries)
