"""Queues and resources as Prometheus gauges, for `/metrics` and `manage.py queue_depth --format prom`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import generate_latest

from supervision.insight.autoscaling import Load, loads
from supervision.operations import pauses
from supervision.operations.resource_limits import figures

AGENT_GAUGES = {
    "waiting": "Steps that are due or claimed and not started",
    "running": "Steps being worked on",
    "overdue": "Steps past their complete-by",
    "oldest_seconds": "How long the oldest waiting step has waited that no pause holds",
    "held": "Waiting steps that a pause holds",
    "finished_per_second": "Steps finished per second lately",
    "mean_seconds": "How long the steps that finished lately took",
    "consumers": "Processes that serve the agent's queue",
    "recommended_calls": "Calls side by side that keep up and work the backlog off in time",
    "recommended_consumers": "Processes that make so many calls",
}
RESOURCE_GAUGES = {
    "in_flight": "Calls under way",
    "waiting": "Steps of its service that no agent has started",
    "failures": "Failures in a row",
    "paused": "1 while an operator has paused it",
}


def agent_gauges(depths: Sequence[Load]) -> Iterator[GaugeMetricFamily]:
    """One gauge per figure, one sample per agent."""
    for name, words in AGENT_GAUGES.items():
        gauge = GaugeMetricFamily(f"sas_agent_{name}", words, labels=["agent"])
        for depth in depths:
            gauge.add_metric([depth.agent], getattr(depth, name))
        yield gauge


def resource_gauges() -> Iterator[GaugeMetricFamily]:
    """Limits and load of each resource, and how many pauses are in force."""
    rows = figures()
    for name, words in RESOURCE_GAUGES.items():
        gauge = GaugeMetricFamily(f"sas_resource_{name}", words, labels=["resource"])
        for row in rows:
            gauge.add_metric([row.name], float(getattr(row, name)))
        yield gauge
    capacity = GaugeMetricFamily("sas_resource_capacity", "Calls at once, where limited", labels=["resource"])
    breaker = GaugeMetricFamily("sas_resource_breaker_open", "1 while its breaker is not closed", labels=["resource"])
    for row in rows:
        breaker.add_metric([row.name], float(row.breaker_state != "closed"))
        if row.capacity is not None:
            capacity.add_metric([row.name], row.capacity)
    yield from (capacity, breaker)
    yield GaugeMetricFamily("sas_pauses_active", "Pauses in force", value=pauses.active().count())


class Tables:
    """The collector of the gauges of queues and resources."""

    def __init__(self, depths: Sequence[Load] | None = None) -> None:
        self._depths = depths

    def collect(self) -> Iterator[Any]:
        """Read the tables; called once per scrape."""
        yield from agent_gauges(loads() if self._depths is None else self._depths)
        yield from resource_gauges()


def text(depths: Sequence[Load]) -> str:
    """The same gauges as one text document."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Tables(depths))
    return generate_latest(registry).decode()
