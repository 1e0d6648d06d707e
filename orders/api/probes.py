"""Probes for the infrastructure: liveness, readiness and Prometheus metrics. Internal: no secrets, no names of customers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.db import Error, connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from orders.api.readiness import readiness
from supervision.insight import metrics as metrics_of_the_engine
from supervision.insight import queries
from supervision.insight.totals import Totals
from supervision.operations import doctor

_BACKLOG = """
SELECT count(*), coalesce(extract(epoch FROM now() - min(created_at)), 0)::float8
FROM supervision_submission WHERE consumed_at IS NULL
"""
_HEARTBEATS = """
SELECT role, min(extract(epoch FROM now() - seen_at))::float8 FROM supervision_heartbeat GROUP BY role ORDER BY role
"""
_OPEN_ALERTS = """
SELECT count(*) FROM supervision_alert WHERE closed_at IS NULL AND acknowledged_at IS NULL AND severity <> 'info'
"""
_OPEN_INCIDENTS = "SELECT kind, severity, count(*) FROM supervision_incident WHERE closed_at IS NULL GROUP BY kind, severity ORDER BY 1, 2"
_DEAD_LETTERS = "SELECT count(*) FROM supervision_deadletter WHERE resolved_at IS NULL"


@never_cache
@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """200 while the process lives. The database is not checked, so a database outage does not restart web processes."""
    return JsonResponse({"status": "ok"})


@never_cache
@require_safe
def readyz(request: HttpRequest) -> HttpResponse:
    """200 while orders can be accepted, which needs a database that takes writes, and no broker. Also shows the backlog."""
    status, document = readiness.answer()
    return JsonResponse(document, status=status)


@never_cache
@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """Prometheus text, read from the tables: every web process gives the same values."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Tables())
    registry.register(Totals())
    try:
        return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)
    except Error:
        return HttpResponse("# the database cannot be reached\n", status=503, content_type="text/plain")


class _Tables:
    """The state store's figures as gauges."""

    def collect(self) -> Iterator[Any]:
        orders = GaugeMetricFamily("sas_orders", "Unfinished orders by state", labels=["state"])
        for state, count in queries.counts_by_state().items():
            orders.add_metric([state], count)
        yield orders
        yield GaugeMetricFamily("sas_steps_overdue", "Steps past their complete-by", value=queries.overdue_count())
        yield GaugeMetricFamily("sas_alerts_open", "Open alerts that wait for an operator", value=_row(_OPEN_ALERTS)[0])
        standing = GaugeMetricFamily("sas_incidents_open", "Open incidents", labels=["kind", "severity"])
        for kind, severity, count in _rows(_OPEN_INCIDENTS):
            standing.add_metric([kind, severity], count)
        yield standing
        yield GaugeMetricFamily("sas_dead_letters_open", "Dead letters that no operator has resolved", value=_row(_DEAD_LETTERS)[0])
        waiting, oldest = _row(_BACKLOG)
        yield GaugeMetricFamily("sas_submissions_waiting", "Accepted orders not yet taken up", value=waiting)
        yield GaugeMetricFamily("sas_submissions_oldest_seconds", "Age of the oldest of them", value=oldest)
        yield from metrics_of_the_engine.Tables().collect()
        age = GaugeMetricFamily("sas_heartbeat_age_seconds", "Since the freshest process of this role was seen", labels=["role"])
        for role, seconds in _rows(_HEARTBEATS):
            age.add_metric([role], seconds)
        yield age
        alive = GaugeMetricFamily("sas_processes_alive", "Processes seen in the last 30 s, by name and by role", labels=["role"])
        for role, count in doctor.alive().items():
            alive.add_metric([role], count)
        yield alive


def _rows(statement: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())


def _row(statement: str) -> tuple[Any, ...]:
    return _rows(statement)[0]


_PROBES = {"healthz": healthz, "readyz": readyz, "metrics": metrics}
urlpatterns = [path(f"{name}{slash}", view) for name, view in _PROBES.items() for slash in ("", "/")]
