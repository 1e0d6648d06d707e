"""What has been counted since the beginning, as Prometheus counters and histograms: orders by their end, and what processes counted.

Orders and their times are exact, a minute late at most: `incidents.pulse` counts them from the tables. A scrape reads one row for
all older minutes, a row for each of the last few, and one for each series that processes count. None of these grow with history.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric

from supervision.incidents.pulse import BASE, FACTOR, LAST
from supervision.postgres import db
from supervision.telemetry import measures
from supervision.telemetry.measures import Measure

SHOWN = range(0, LAST, 4)  # every fourth class of duration is the upper bound of a bucket

# One statement: the supervisor moves minutes into the totals meanwhile, and between two statements a minute would be in neither. Of a
# counter that falls, Prometheus believes that it has begun anew, and adds all orders since the first one up again.
_ENDS = """
SELECT processed, cancelled, stopped, seconds, ARRAY(SELECT generate_series(0, cardinality(counts) - 1)), counts
  FROM supervision_pulsetotal
 UNION ALL
SELECT processed, cancelled, stopped, coalesce(seconds, 0), classes::int[], counts::bigint[]
  FROM supervision_pulse
 WHERE minute >= coalesce((SELECT until FROM supervision_pulsetotal), 'epoch')
"""
_COUNTED = "SELECT name, labels, buckets, total FROM supervision_metric ORDER BY name, labels"


@dataclass(frozen=True)
class Ends:
    """How many orders have ended, and stopped with an error, since the first one. classes: of those Processed, by class of duration."""

    processed: int
    cancelled: int
    stopped: int
    seconds: float
    classes: Mapping[int, int]


def ends() -> Ends:
    """The orders that have ended so far, up to the last look of the supervisor."""
    processed, cancelled, stopped, seconds, classes = 0, 0, 0, 0.0, Counter[int]()
    for more_processed, more_cancelled, more_stopped, more_seconds, at, counts in db.fetch(_ENDS):
        processed, cancelled, stopped = processed + more_processed, cancelled + more_cancelled, stopped + more_stopped
        seconds += more_seconds
        classes.update(dict(zip(at, counts, strict=True)))
    return Ends(processed, cancelled, stopped, seconds, classes)


class Totals:
    """The collector of these counters and histograms."""

    def collect(self) -> Iterator[Metric]:
        """Read the tables; called once per scrape."""
        yield from _of_orders(ends())
        rows: dict[str, list[tuple[tuple[str, ...], Sequence[int], float]]] = {}
        for name, labels, buckets, total in db.fetch(_COUNTED):
            rows.setdefault(name, []).append((tuple(json.loads(labels)), buckets, total))
        for name, measure in measures.declared.items():
            yield _family(measure, rows.get(name, []))


def _of_orders(found: Ends) -> Iterator[Metric]:
    ended = CounterMetricFamily("sas_orders_finished_total", "Orders that have ended, by their end", labels=["outcome"])
    ended.add_metric(["processed"], found.processed)
    ended.add_metric(["cancelled"], found.cancelled)
    yield ended
    yield CounterMetricFamily("sas_orders_stopped_total", "Errors that stopped an order", value=found.stopped)
    times = HistogramMetricFamily("sas_order_seconds", "From the order's acceptance to Processed")
    upto = list(accumulate(found.classes.get(number, 0) for number in range(LAST + 1)))
    bounds = [(f"{BASE * FACTOR**number:.4g}", upto[number]) for number in SHOWN]
    times.add_metric([], [*bounds, ("+Inf", upto[-1])], found.seconds)
    yield times


def _family(measure: Measure, rows: Sequence[tuple[tuple[str, ...], Sequence[int], float]]) -> Metric:
    if not measure.bounds:
        counter = CounterMetricFamily(measure.name, measure.words, labels=measure.labels)
        for labels, _, total in rows:
            if len(labels) == len(measure.labels):
                counter.add_metric(labels, total)
        return counter
    histogram = HistogramMetricFamily(measure.name, measure.words, labels=measure.labels)
    names = [*(f"{bound:g}" for bound in measure.bounds), "+Inf"]
    for labels, buckets, total in rows:
        if len(labels) == len(measure.labels) and len(buckets) == len(names):
            histogram.add_metric(labels, list(zip(names, accumulate(buckets), strict=True)), total)
    return histogram
