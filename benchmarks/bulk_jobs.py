"""A bulk job that resubmits many failed orders, and the engine's throughput beside it.

  python -m benchmarks.bulk_jobs [--orders 20000] [--seconds 10]

Orders of four no-op steps are submitted in a closed loop all the time. The job is stopped and resumed by turns, and the orders are
counted beside it and while it is stopped: new orders only, and all steps with those of the resubmitted orders. So a machine that
becomes slower does not count as the job's share. Every order of the job failed at its last step, so each leads to one step.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks import environment, stage
from benchmarks.__main__ import BROKER_URL, REDIS_URL, database, say
from benchmarks.children import Command
from benchmarks.lab import open_lab
from benchmarks.systems import OURS

# Orders that failed at their last step. Their calls are not counted as orders: `heard` is in the payload.
SEED = """
SET session_replication_role = replica;
INSERT INTO supervision_run (process_state, created_at, workflow, version, key, payload)
SELECT 'Error', now(), 'noop', 1, 'failed-' || i, '{"heard": true}' FROM generate_series(1, %(orders)s) i;
INSERT INTO supervision_stepstate (run_id, direction, position, process_state, attempt, seq, effect, name, agent, idempotency_key,
       finished_at, started_at, last_error, result, failure_count)
SELECT r.id, 'do', p, CASE WHEN p < 3 THEN 'Processed' ELSE 'Error' END, 1, p + 1, CASE WHEN p < 3 THEN 'done' ELSE 'none' END,
       'step-' || agent[p + 1], agent[p + 1], r.key || ':' || p, now(), now(), CASE WHEN p = 3 THEN 'refused' END,
       CASE WHEN p < 3 THEN '{"ok": true}'::jsonb END, CASE WHEN p = 3 THEN 1 ELSE 0 END
  FROM supervision_run r, generate_series(0, 3) p, (SELECT ARRAY['stock', 'payment', 'shipping', 'email'] AS agent) names;
SET session_replication_role = DEFAULT;
ANALYZE supervision_run, supervision_stepstate;
"""
ACT = "import django; django.setup(); from supervision.jobs import steering; steering."
START = ACT + "start('resubmit', {'process_state': 'Error'}, by='benchmark', reason='measured')"
STOP, RESUME = ACT + "stop(1, by='benchmark', reason='measured')", ACT + "resume(1, by='benchmark', reason='measured')"

TURNS = 4


class Counter:
    """Orders and steps a second between two looks."""

    def __init__(self, play: stage.Stage) -> None:
        self.play = play

    def during(self, rests: Callable[[float], bool]) -> tuple[float, float]:
        """Measure until `rests`, which gets the seconds since the beginning: new orders a second, all steps a second."""
        orders, (steps, _), began = self.play.reader.orders(), self.play.reader.counts(), time.monotonic()
        while not rests(time.monotonic() - began):
            time.sleep(0.1)
            if problem := self.play.group.dead():
                raise RuntimeError(problem)
        took = time.monotonic() - began
        return (self.play.reader.orders() - orders) / took, (self.play.reader.counts()[0] - steps) / took


def main() -> int:
    """Measure, and print a line for each part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--orders", type=int, default=20_000, metavar="N", help="of the job")
    parser.add_argument("--seconds", type=float, default=10.0, metavar="S", help="of each turn beside the job, and without it")
    options = parser.parse_args()
    with (
        database() as url,
        open_lab(url, BROKER_URL, REDIS_URL, environment.prepare([], say), say) as lab,
        stage.stage(lab, OURS) as play,
        lab.connect("ours") as connection,
    ):
        for statement in SEED.split(";\n"):
            if statement.strip():
                connection.execute(statement.encode(), {"orders": options.orders} if "%(" in statement else None)
        play.start_workers()
        play.start_client("--window", str(OURS.window), "--threads", str(OURS.threads))
        if not play.wait_for_orders(1, stage.FIRST_ORDER_SECONDS):
            raise RuntimeError("no order was done")
        time.sleep(5)
        return _measure(play, connection, options.orders, options.seconds)


def _measure(play: stage.Stage, connection: Any, orders: int, seconds: float) -> int:
    counter = Counter(play)

    def act(code: str) -> None:
        env = play.system.environment(play.lab, slow=False)
        play.group.run(Command("operator", [sys.executable, "-W", "ignore", "-c", code], env))

    def position() -> int:
        row = connection.execute("SELECT position FROM supervision_job").fetchone()
        return int(row[0])

    act(START)
    began = time.monotonic()
    beside, alone, stands, rested = [], [], True, 0.0
    for turn in range(TURNS):
        beside.append(counter.during(lambda passed: passed > seconds or position() >= orders))
        act(STOP)
        stopped, since = position(), time.monotonic()
        alone.append(counter.during(lambda passed: passed > seconds))
        stands &= position() == stopped
        rested += time.monotonic() - since
        act(RESUME)
        print(f"{turn + 1}. beside it {beside[-1][0]:,.0f} new orders/s; stopped at {stopped:,}: {alone[-1][0]:,.0f}")
    counter.during(lambda _passed: position() >= orders)
    took = time.monotonic() - began - rested
    play.stop_client()
    outcomes = connection.execute("SELECT outcome, count(*) FROM supervision_jobresult GROUP BY 1").fetchall()
    new, steps = (statistics.median(one[what] for one in beside) / statistics.median(one[what] for one in alone) for what in (0, 1))
    print(f"new orders beside it: {new:.2f} x; all steps: {steps:.2f} x (medians)")
    print(f"{orders:,} orders in {took:.0f} s, {orders / took:.0f}/s; stood still while stopped: {stands}; results: {dict(outcomes)}")
    return 0 if stands and dict(outcomes) == {"done": orders} else 1


if __name__ == "__main__":
    sys.exit(main())
