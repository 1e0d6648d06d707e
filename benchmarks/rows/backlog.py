"""The engine alone: one agents process works off a backlog of Pending orders. No client submits meanwhile."""

from __future__ import annotations

import sys
import time

from benchmarks import systems
from benchmarks.children import ChildFailed, Command
from benchmarks.lab import Lab
from benchmarks.plan import Entry, Facts, Profile, Row
from benchmarks.stage import FIRST_ORDER_SECONDS, STEPS, Stage, stage

BEGINNING_SECONDS = 1.0  # not measured: query plans are made and connections opened
END_SHARE = 0.97  # measured until then: the last cohorts are smaller


def fill(play: Stage, orders: int) -> None:
    """Write so many Pending orders."""
    words = [sys.executable, "-W", "ignore", "-m", "benchmarks.noop.backlog", str(orders)]
    play.group.run(Command("backlog", words, {**play.system.environment(play.lab, slow=False), "SAS_ROLE": "client"}))


def drain(lab: Lab, profile: Profile) -> Facts:
    """Measure durable steps a second, also in the first and the last third of the backlog alone, and the memory in use."""
    total = profile.backlog * STEPS
    with stage(lab, systems.OURS) as play:
        fill(play, profile.backlog)
        lab.checkpoint()  # otherwise one comes in the middle, and slows the last third
        play.start_workers()
        if not play.wait_for_orders(1, FIRST_ORDER_SECONDS):
            raise ChildFailed(f"no order was done in {FIRST_ORDER_SECONDS:.0f} s")
        parties = play.parties()
        time.sleep(min(BEGINNING_SECONDS, profile.backlog / 20_000))
        marks = [(time.monotonic(), play.reader.counts()[0])]
        before, wal = parties.cpu_seconds(), lab.wal()
        while marks[-1][1] < END_SHARE * total:
            time.sleep(0.1)
            marks.append((time.monotonic(), play.reader.counts()[0]))
            if marks[-1][0] - marks[0][0] > 300:
                raise ChildFailed("the backlog was not worked off in five minutes")
        after, wal_after, resident = parties.cpu_seconds(), lab.wal(), parties.resident_mb()
        unfinished = play.unfinished(profile.backlog)
    (began, first), (ended, last) = marks[0], marks[-1]
    orders = (last - first) / STEPS
    cpu = {group: (after[group] - before[group]) / orders * 1e6 for group in after}
    return {
        "steps_per_second": (last - first) / (ended - began),
        "orders_per_second": orders / (ended - began),
        "first_third": _rate(marks, first, first + (last - first) / 3),
        "last_third": _rate(marks, last - (last - first) / 3, last),
        "cpu_us": cpu,
        "cpu_us_all": sum(cpu.values()),
        "wal_bytes": (wal_after - wal) / orders,
        "resident_mb": resident,
        "unfinished": unfinished,
    }


def _rate(marks: list[tuple[float, int]], low: float, high: float) -> float:
    inside = [mark for mark in marks if low <= mark[1] <= high]
    if len(inside) < 2 or inside[-1][0] == inside[0][0]:
        return 0.0
    return (inside[-1][1] - inside[0][1]) / (inside[-1][0] - inside[0][0])


ROW = Row(
    "drain",
    "Engine only: a backlog worked off by one agents process",
    lambda profile: [Entry("drain", f"this engine, {profile.backlog:,} orders waiting", drain, systems.OURS.missing)],
)
