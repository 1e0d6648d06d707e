"""What each verb of the store costs: CPU in PostgreSQL, CPU in Python, and bytes of write-ahead log."""

from __future__ import annotations

import json
import sys
from functools import partial

from benchmarks import systems
from benchmarks.children import Command
from benchmarks.lab import Lab
from benchmarks.plan import Entry, Facts, Profile, Row
from benchmarks.stage import stage

COHORTS = (1, 50, 200)  # under low, medium and full load


def _costs(cohort: int, lab: Lab, profile: Profile) -> Facts:
    orders = max(cohort * 10, min(3_000, profile.backlog // 5) if cohort > 1 else 200)
    with stage(lab, systems.OURS) as play:
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.noop.verb_costs", str(cohort), str(orders)]
        said = play.group.run(Command("verbs", command, systems.OURS.environment(lab, slow=False)))
        return {"verbs": json.loads(said.splitlines()[-1])}


def _entries(profile: Profile) -> list[Entry]:
    return [Entry(f"cohort-{cohort}", f"cohorts of {cohort}", partial(_costs, cohort)) for cohort in COHORTS]


ROW = Row("verbs", "Where the time goes", _entries)
