"""Measures what each verb of the store costs PostgreSQL and Python: one after the other in one process, cohort by cohort.

`python -m benchmarks.noop.verb_costs COHORT ORDERS` prints one JSON object: per verb, microseconds and bytes per order.
The times are CPU times (of the connection's own server process and of this one), so a busy machine hardly disturbs them.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import django

django.setup()

from benchmarks.noop.client import order  # noqa: E402 - needs the applications
from supervision.intake import consuming, submission  # noqa: E402
from supervision.postgres import db  # noqa: E402
from supervision.states import Claim  # noqa: E402
from supervision.store import step_verbs  # noqa: E402
from supervision.wakeup import hints  # noqa: E402

VERBS = ("accept", "consume", "start", "finish and claim", "finish the last")
RESULT = {"ok": True, "agent": "shipping"}


class Meter:
    """Totals by verb: CPU of the server process, CPU of this process, bytes of write-ahead log."""

    def __init__(self) -> None:
        self.server = Path(f"/proc/{db.fetch('SELECT pg_backend_pid()')[0][0]}/schedstat")
        self.totals = {verb: [0.0, 0.0, 0.0] for verb in VERBS}

    def _look(self) -> tuple[float, float, float]:
        wal = float(db.fetch("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")[0][0])
        server = int(self.server.read_text().split()[0]) / 1000 if self.server.exists() else 0.0
        return server, time.thread_time() * 1e6, wal

    def of(self, verb: str, work: Callable[[], Any]) -> Any:
        """Do the work and add its cost to the verb's totals."""
        before = self._look()
        answer = work()
        after = self._look()
        for n, cost in enumerate(zip(before, after, strict=True)):
            self.totals[verb][n] += cost[1] - cost[0]
        return answer


def cohort(meter: Meter, size: int) -> None:
    """Process so many orders, from the submission to the last step."""
    now = time.monotonic()

    def accept() -> None:
        for _ in range(size):
            submission.accept([order(now)])

    meter.of("accept", accept)
    report = meter.of("consume", lambda: consuming.consume_batch(size))
    ((place, claims),) = report.born.items()
    started = meter.of("start", lambda: step_verbs.start(place, [Claim(*claim) for claim in claims]))
    while True:
        done = [(item, RESULT) for item in started]
        if place.is_last:
            meter.of("finish the last", lambda place=place, done=done: step_verbs.finish_at(place)(done))
            return
        finish = step_verbs.finish_at(place, step_verbs.Successor.STARTED)
        handed = meter.of("finish and claim", lambda finish=finish, done=done: finish(done))
        place, started = place.following, handed.started


def main() -> None:
    """Measure and print."""
    hints.enabled = False
    size, orders = int(sys.argv[1]), int(sys.argv[2])
    meter = Meter()
    for _ in range(3):
        cohort(meter, size)
    # The cost of the readings themselves is subtracted.
    empty = [Meter._look(meter) for _ in range(50)]
    looking = [(empty[-1][n] - empty[0][n]) / (len(empty) - 1) for n in range(3)]
    meter.totals = {verb: [0.0, 0.0, 0.0] for verb in VERBS}
    rounds = orders // size
    for _ in range(rounds):
        cohort(meter, size)
    calls = {verb: rounds * (3 if verb == "finish and claim" else 1) for verb in VERBS}
    facts = {
        verb: {
            name: (total - calls[verb] * looking[n]) / (rounds * size)
            for n, (name, total) in enumerate(zip(("server_us", "python_us", "wal_bytes"), totals, strict=True))
        }
        for verb, totals in meter.totals.items()
    }
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
