"""Counters and histograms of all processes, kept in `supervision_metric`. `insight.metrics` exports them for Prometheus.

A process counts in its memory and adds what it has counted to the table every few seconds, in one statement. So counting costs no
query, the numbers survive restarts, and every web process shows the sums over all processes. A process that is killed loses the
counts of its last seconds. What must be exact is not counted here: `incidents.pulse` reads orders and their ends from the tables.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import threading
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from django.db import connection

from supervision.postgres import db
from supervision.runtime.periodic import PeriodicLoop
from supervision.runtime.tidying import tidier

log = logging.getLogger(__name__)

EVERY_SECONDS = 5.0
MOST_SERIES = 500  # of one metric in one process; more label values than that are counted under OTHER
MOST_LABEL = 80
OTHER = "other"
KEPT_DAYS = 90  # a series that no process has added to for so long is deleted

SHORT = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
LONG = (0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)

_ADD = """
INSERT INTO supervision_metric AS m (name, labels, buckets, total)
SELECT v.name, v.labels, v.buckets::bigint[], v.total
  FROM unnest(%(names)s::text[], %(labels)s::text[], %(buckets)s::text[], %(totals)s::float8[]) v(name, labels, buckets, total)
 ORDER BY v.name, v.labels
ON CONFLICT (name, labels) DO UPDATE SET added_at = now(),
       total = excluded.total + CASE WHEN cardinality(m.buckets) = cardinality(excluded.buckets) THEN m.total ELSE 0 END,
       buckets = CASE WHEN cardinality(m.buckets) <> cardinality(excluded.buckets) THEN excluded.buckets ELSE ARRAY(
           SELECT a.n + b.n FROM unnest(m.buckets) WITH ORDINALITY a(n, i) JOIN unnest(excluded.buckets) WITH ORDINALITY b(n, i) USING (i)
            ORDER BY i) END
"""
BATCH = 1000
_FORGET = """
DELETE FROM supervision_metric WHERE (name, labels) IN (
    SELECT name, labels FROM supervision_metric WHERE added_at < now() - %(days)s::int * interval '1 day' LIMIT %(batch)s)
RETURNING name
"""


@dataclass(frozen=True)
class Measure:
    """A counter, or with `bounds` (upper bounds in seconds) a histogram. labels: their names; few values each, never an id."""

    name: str
    words: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()

    def add(self, *values: str, number: float = 1) -> None:
        """Add to a counter. values: one for each label."""
        with _lock:
            _row(self, values)[-1] += number

    def observe(self, seconds: float, *values: str, number: int = 1) -> None:
        """Add `number` observations of this duration to a histogram. values: one for each label."""
        place, total = bisect_left(self.bounds, seconds), max(seconds, 0.0) * number
        with _lock:
            row = _row(self, values)
            row[place] += number
            row[-1] += total

    def observe_all(self, durations: Sequence[float], *values: str) -> None:
        """Add an observation of each of these durations, in seconds, to one series of a histogram."""
        if not durations:
            return
        places, total = [bisect_left(self.bounds, seconds) for seconds in durations], sum(max(seconds, 0.0) for seconds in durations)
        with _lock:
            row = _row(self, values)
            for place in places:
                row[place] += 1
            row[-1] += total


Series = tuple[str, tuple[str, ...]]
declared: dict[str, Measure] = {}
_lock = threading.Lock()
_counted: dict[Series, list[float]] = {}  # the count of each bucket, and last the total
_known: dict[str, set[tuple[str, ...]]] = {}
_loops: dict[int, PeriodicLoop] = {}


def counter(name: str, words: str, *labels: str) -> Measure:
    """Declare a counter; its name ends in `_total`."""
    return declared.setdefault(name, Measure(name, words, labels))


def histogram(name: str, words: str, bounds: tuple[float, ...], *labels: str) -> Measure:
    """Declare a histogram of durations; its name ends in `_seconds`."""
    return declared.setdefault(name, Measure(name, words, labels, bounds))


ACCEPTED = counter("sas_orders_accepted_total", "Orders accepted", "workflow")
CONSUMED = counter("sas_submissions_consumed_total", "Submissions that became runs or dead letters", "outcome")
ATTEMPTS = counter("sas_step_attempts_total", "Attempts of steps that ended", "workflow", "step", "direction", "outcome")
ATTEMPT_SECONDS = histogram("sas_step_seconds", "How long an agent worked on one step", SHORT, "workflow", "step", "direction")
FAILURES = counter("sas_step_failures_total", "Attempts that did not succeed, by the failure's code", "agent", "code")
THREAD_WAIT = histogram("sas_call_wait_seconds", "How long a started step waited for a thread of its process", SHORT, "agent")
QUEUE_AGE = histogram("sas_queue_age_seconds", "How long a step was due before a scheduler claimed it", LONG, "agent")
SWEEPS = counter("sas_sweeps_total", "Sweeps of the supervisor", "outcome")
SWEEP_SECONDS = histogram("sas_sweep_seconds", "How long a sweep took", SHORT)
RECOVERED = counter("sas_recovered_total", "What sweeps decided about expired attempts and lost hints", "decision")
UNSENT = counter("sas_publish_failures_total", "Messages that the broker did not take", "message")
CALLS = histogram("sas_service_call_seconds", "How long calls of remote services took", SHORT, "service", "status")
DELIVERIES = histogram("sas_delivery_seconds", "How long tries to deliver a status message took", SHORT, "kind", "outcome")
REQUESTS = histogram("sas_http_request_seconds", "How long answers of the web role took", SHORT, "method", "route", "status")


def _row(measure: Measure, values: tuple[str, ...]) -> list[float]:
    """The counts of this series; call it under the lock."""
    row = _counted.get((measure.name, values))
    if row is None:
        known = _known.setdefault(measure.name, set())
        values = tuple(value[:MOST_LABEL].replace("\0", "") for value in values)
        if values not in known:
            if len(known) >= MOST_SERIES:
                values = (OTHER,) * len(values)
            known.add(values)
        row = _counted.setdefault((measure.name, values), [0] * (len(measure.bounds) + 2 if measure.bounds else 1))
    return row


def flush() -> None:
    """Add to the table what this process has counted since the last flush. What cannot be written now is kept for the next one."""
    global _counted
    with _lock:
        counted, _counted = _counted, {}
    if not counted:
        return
    rows = [
        (name, json.dumps(values), f"{{{','.join(str(int(n)) for n in row[:-1])}}}", row[-1]) for (name, values), row in counted.items()
    ]
    names, labels, buckets, totals = map(list, zip(*rows, strict=True))
    try:
        db.run(_ADD, {"names": names, "labels": labels, "buckets": buckets, "totals": totals}, patience=None)
    except Exception:
        with _lock:
            for series, row in counted.items():
                now = _counted.setdefault(series, [0] * len(row))
                now[:] = [a + b for a, b in zip(now, row, strict=True)]
        raise


def keep_flushing() -> None:
    """Flush every few seconds on a thread of this process, and once more when the process ends. For processes without a heartbeat."""
    if os.getpid() not in _loops:
        _loops[os.getpid()] = PeriodicLoop("metrics", EVERY_SECONDS, _flush_and_let_go).start()
        atexit.register(at_end)


def at_end() -> None:
    """Flush for the last time. A database that cannot be reached then costs these counts, and no error."""
    try:
        _flush_and_let_go()
    except Exception as error:
        log.info("the last counts were not written: %s", error)


def _flush_and_let_go() -> None:
    try:
        flush()
    finally:
        connection.close()  # a pool's connection is free for requests


def forget() -> None:
    """Drop what this process has counted and not written: a child must not count its parent's work again. For tests, too."""
    global _lock
    _lock = threading.Lock()
    _counted.clear()
    _known.clear()


@tidier("metrics")
def _delete_old() -> bool:
    return len(db.run(_FORGET, {"days": KEPT_DAYS, "batch": BATCH})) == BATCH


os.register_at_fork(after_in_child=forget)
