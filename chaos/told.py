"""Judges what the operators of a run were told: one incident for each cause, as long as the cause lasts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from chaos.evidence import Evidence

GONE_AT_REST = ("step_error", "outage", "starvation", "hook_failed", "unknown_version")  # kinds whose causes healing ends


def outlived(evidence: Evidence) -> Iterator[tuple[str | None, str]]:
    """Incidents that are still open when everything has come to rest."""
    for row in evidence.rows["incidents"]:
        if row.kind in GONE_AT_REST and row.closed_at is None:
            yield None, f"{row.cause} is open, with {row.orders} orders"


def opened_twice(evidence: Evidence) -> Iterator[tuple[str | None, str]]:
    """Causes with more than one incident: what returns within half an hour, longer than most runs, is the same one."""
    for cause, count in Counter(row.cause for row in evidence.rows["incidents"] if row.kind in GONE_AT_REST).items():
        if count > 1:
            yield None, f"{count} incidents of {cause}"


def poison_untold(evidence: Evidence) -> Iterator[tuple[str | None, str]]:
    """Orders that stood in Error because their service failed for them, and that no incident of their step gathered."""
    runs = {run.key: run.id for run in evidence.rows["runs"]}
    of_step = {row.id for row in evidence.rows["incidents"] if row.kind == "step_error" and row.step == "book-shipment"}
    gathered = {alert.run_id for alert in evidence.rows["alerts"] if alert.incident_id in of_step}
    for order in sorted({fact["id"] for fact in evidence.journal.of("bot", "left")}):
        if runs.get(order) not in gathered:
            yield order, "the carrier failed for it, and no incident says so"
