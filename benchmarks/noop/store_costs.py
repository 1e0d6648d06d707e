"""Measures what the store's functions cost beside many finished rows, and while another transaction holds an old snapshot.

`python -m benchmarks.noop.store_costs finished ROWS` or `snapshot ORDERS [held]`; prints one JSON object.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable

import django

django.setup()

from django.db import connection, connections  # noqa: E402 - needs the applications

from benchmarks.noop import backlog  # noqa: E402
from supervision.intake import consuming, submission  # noqa: E402
from supervision.postgres import db  # noqa: E402
from supervision.recovery import supervisor  # noqa: E402
from supervision.store import claiming  # noqa: E402
from supervision.wakeup import hints  # noqa: E402

COHORT = 200
EXPIRED = 1000
CLAIMS, SWEEPS = 25, 5

FINISHED_RUNS = """
INSERT INTO supervision_run (workflow, version, key, process_state, payload, created_at, finished_at)
SELECT 'noop', 1, 'finished-' || n, 'Processed', '{"email": "ada@example.com"}', now() - interval '1 day', now() - interval '1 day'
  FROM generate_series(1, %(runs)s::int) n
"""
FINISHED_STEPS = """
INSERT INTO supervision_stepstate (run_id, direction, position, name, agent, process_state, not_before, turn_at, attempt, seq,
                                   effect, started_at, finished_at, result, idempotency_key)
SELECT r.id, 'do', p, 'step-' || p, (ARRAY['stock', 'payment', 'shipping', 'email'])[p + 1], 'Processed',
       r.created_at, r.created_at, 1, 3, 'done', r.created_at, r.finished_at, '{"ok": true}', r.key || ':' || p || ':do:1'
  FROM supervision_run r CROSS JOIN generate_series(0, 3) p
"""
EXPIRE = """
UPDATE supervision_stepstate SET started_at = now() - interval '20 s', complete_by = now() - interval '10 s'
 WHERE process_state = 'Processing'
"""


def milliseconds(work: Callable[[], object]) -> float:
    """How long this work takes."""
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000


def finished(rows: int) -> dict[str, float]:
    """Measure claims of 200 steps and sweeps of 1,000 expired steps, beside so many finished steps."""
    db.fetch(FINISHED_RUNS, {"runs": rows // 4})
    db.fetch(FINISHED_STEPS)
    backlog.write(CLAIMS * COHORT + SWEEPS * EXPIRED)
    vacuum()
    claims = [milliseconds(lambda: claiming.claim(COHORT)) for _ in range(CLAIMS)]
    db.fetch(EXPIRE)
    supervisor.sweep_once()
    sweeps = []
    for _ in range(SWEEPS):
        for _ in range(EXPIRED // COHORT):
            claiming.claim(COHORT)
        db.fetch(EXPIRE)
        reports = []
        sweeps.append(milliseconds(lambda reports=reports: reports.append(supervisor.sweep_once())))
        if reports[0].overdue != EXPIRED:
            raise AssertionError(f"the sweep recovered {reports[0].overdue} steps, not {EXPIRED}")
    return {
        "claim_ms": statistics.median(claims[2:]),
        "sweep_ms": statistics.median(sweeps),
        "idle_sweep_ms": statistics.median(milliseconds(supervisor.sweep_once) for _ in range(9)),
    }


def snapshot(orders: int, *, held: bool) -> dict[str, float]:
    """Measure the first and the last batches of consumed submissions and claimed steps. held: while a snapshot is open."""
    connection.ensure_connection()
    other = connections.create_connection("default")
    if held:
        other.ensure_connection()
        other.connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        other.connection.execute("SELECT count(*) FROM supervision_run")
    consumed: list[float] = []
    took: list[int] = []

    def claim() -> None:
        took.append(sum(map(len, claiming.claim(COHORT).values())))

    for _ in range(orders // backlog.PORTION):
        now = time.monotonic()
        submission.accept([backlog.order(now) for _ in range(backlog.PORTION)])
        consumed += [milliseconds(lambda: consuming.consume_batch(COHORT, born=False)) for _ in range(backlog.PORTION // COHORT)]
    vacuum()
    rounds = len(consumed)
    claimed = [milliseconds(claim) for _ in range(rounds)]
    if sum(took) != rounds * COHORT:
        raise AssertionError(f"{sum(took)} steps were claimed, not {rounds * COHORT}")
    other.close()
    part = max(3, rounds // 10)
    return {
        "consume_first_ms": statistics.median(consumed[:part]),
        "consume_last_ms": statistics.median(consumed[-part:]),
        "claim_first_ms": statistics.median(claimed[:part]),
        "claim_last_ms": statistics.median(claimed[-part:]),
    }


def vacuum() -> None:
    """Vacuum the tables, as autovacuum would have done by now."""
    db.fetch("VACUUM (ANALYZE) supervision_submission, supervision_run, supervision_stepstate, supervision_stepevent")


def main() -> None:
    """Measure and print."""
    hints.enabled = False
    what, number, *more = sys.argv[1:]
    facts = finished(int(number)) if what == "finished" else snapshot(int(number), held=more == ["held"])
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
