"""Kills every worker with SIGKILL at full load and restarts all at once: how long until the throughput is back?"""

from __future__ import annotations

import time

from benchmarks import systems
from benchmarks.children import ChildFailed
from benchmarks.lab import Lab
from benchmarks.plan import Entry, Facts, Profile, Row
from benchmarks.stage import FIRST_ORDER_SECONDS, Stage, observe, stage

COMPLETE_WITHIN, SWEEP = 5.0, 1.0
SHARE = 0.9
PATIENCE = 60.0


def kill(lab: Lab, profile: Profile) -> Facts:
    """Seconds from the kill to nine tenths of the former throughput, and to the end of the last order under way at the kill."""
    env = {"SUPERVISION_COMPLETE_WITHIN": str(COMPLETE_WITHIN), "SUPERVISION_SWEEP_SECONDS": str(SWEEP)}
    with stage(lab, systems.OURS, env=env) as play:
        play.start_workers()
        play.start_client("--window", str(systems.OURS.window), "--threads", str(systems.OURS.threads))
        if not play.wait_for_orders(1, FIRST_ORDER_SECONDS):
            raise ChildFailed(f"no order was done in {FIRST_ORDER_SECONDS:.0f} s")
        time.sleep(profile.warm)
        before = observe(play, profile.seconds).facts()["orders_per_second"]
        play.group.kill([name for name in play.group.running if name.startswith("worker")])
        killed = time.monotonic()
        newest, hit = _under_way(play)
        play.start_workers()
        recovered, ended, marks = None, None, [(0.0, play.reader.orders())]
        while (now := time.monotonic() - killed) < PATIENCE and (recovered is None or ended is None):
            time.sleep(0.1)
            marks.append((now, play.reader.orders()))
            recent = [mark for mark in marks if mark[0] >= now - 1.0]
            rate = (recent[-1][1] - recent[0][1]) / max(0.5, recent[-1][0] - recent[0][0])
            if recovered is None and rate >= SHARE * before:
                recovered = recent[0][0]
            if ended is None and not _left(play, newest):
                ended = now
        submitted = play.stop_client()
        return {
            "orders_per_second": before,
            "recovered_seconds": recovered if recovered is not None else PATIENCE,
            "last_hit_seconds": ended if ended is not None else PATIENCE,
            "hit": hit,
            "allowed_seconds": COMPLETE_WITHIN + SWEEP,
            "unfinished": play.unfinished(submitted),
        }


def _under_way(play: Stage) -> tuple[int, int]:
    """The newest run, and how many steps were claimed at the moment of the kill."""
    with play.lab.connect("ours") as connection:
        row = connection.execute(
            "SELECT (SELECT max(id) FROM supervision_run), (SELECT count(*) FROM supervision_stepstate WHERE process_state = 'Processing')"
        ).fetchone()
    return (int(row[0] or 0), int(row[1])) if row else (0, 0)


def _left(play: Stage, newest: int) -> bool:
    """Whether an order that existed at the kill has not ended yet."""
    with play.lab.connect("ours") as connection:
        row = connection.execute(
            "SELECT EXISTS (SELECT FROM supervision_run"
            " WHERE process_state IN ('Pending', 'Processing', 'Error', 'Compensating') AND id <= %s)",
            (newest,),
        ).fetchone()
    return bool(row and row[0])


ROW = Row(
    "recovery",
    "SIGKILL for all workers at full load",
    lambda profile: [Entry("kill", "this engine, all workers killed", kill, systems.OURS.missing)],
)
