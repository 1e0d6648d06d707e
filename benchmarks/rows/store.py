"""What the store's functions cost: claims and sweeps beside many rows or an old snapshot, and each verb by itself."""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import Any

from benchmarks import systems
from benchmarks.children import Command
from benchmarks.lab import Lab
from benchmarks.plan import Entry, Facts, Profile, Row
from benchmarks.stage import stage

FEW = 1_000
COHORTS = (1, 50, 200)  # under low, medium and full load


def _said(lab: Lab, module: str, *words: object) -> dict[str, Any]:
    """The last line that this module of `benchmarks.noop` prints, run beside a fresh store."""
    with stage(lab, systems.OURS) as play:
        command = [sys.executable, "-W", "ignore", "-m", f"benchmarks.noop.{module}", *map(str, words)]
        said = play.group.run(Command("costs", command, systems.OURS.environment(lab, slow=False)))
        return dict(json.loads(said.splitlines()[-1]))


def _store(words: tuple[object, ...], lab: Lab, profile: Profile) -> Facts:
    return _said(lab, "store_costs", *words)


def _verbs(cohort: int, lab: Lab, profile: Profile) -> Facts:
    orders = max(cohort * 10, min(3_000, profile.backlog // 5) if cohort > 1 else 200)
    return {"verbs": _said(lab, "verb_costs", cohort, orders)}


def _entries(profile: Profile) -> list[Entry]:
    def entry(name: str, title: str, *words: object) -> Entry:
        return Entry(name, title, partial(_store, words))

    return [
        entry("few", f"{FEW:,} finished steps", "finished", FEW),
        entry("many", f"{profile.finished:,} finished steps", "finished", profile.finished),
        entry("free", f"{profile.snapshot:,} orders go by", "snapshot", profile.snapshot),
        entry("held", f"{profile.snapshot:,} orders go by, a snapshot is held", "snapshot", profile.snapshot, "held"),
    ]


ROWS = (
    Row("store", "Claim of 200, sweep of 1,000 expired", _entries),
    Row(
        "verbs",
        "Where the time goes",
        lambda profile: [Entry(f"cohort-{cohort}", f"cohorts of {cohort}", partial(_verbs, cohort)) for cohort in COHORTS],
    ),
)
