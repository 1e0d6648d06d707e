"""Checks the incidents of a run: each cause has one incident, which is open as long as the cause lasts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from chaos.evidence import Evidence

GONE_AT_REST = ("step_error", "outage", "starvation", "hook_failed", "unknown_version")  # kinds whose causes end when all is healed


def outlived(evidence: Evidence) -> Iterator[tuple[str | None, str]]:
    """Incidents that are still open when the shop is at rest, and wait for no operator to look at a step that was given up."""
    given_up = {alert.incident_id for alert in evidence.rows["alerts"] if alert.kind == "skipped" and alert.acknowledged_at is None}
    for row in evidence.rows["incidents"]:
        if row.kind in GONE_AT_REST and row.closed_at is None and row.id not in given_up:
            yield None, f"{row.cause} is open, with {row.orders} orders"


def opened_twice(evidence: Evidence) -> Iterator[tuple[str | None, str]]:
    """Causes with more than one incident. A cause that returns within half an hour, longer than most runs, reopens its incident."""
    for cause, count in Counter(row.cause for row in evidence.rows["incidents"] if row.kind in GONE_AT_REST).items():
        if count > 1:
            yield None, f"{count} incidents of {cause}"


def poison_untold(evidence: Evidence) -> Iterator[tuple[str | None, str]]:
    """Orders that stopped in Error because the carrier failed for them, and that no incident of the step contains."""
    runs = {run.key: run.id for run in evidence.rows["runs"]}
    of_step = {row.id for row in evidence.rows["incidents"] if row.kind == "step_error" and row.step == "book-shipment"}
    gathered = {alert.run_id for alert in evidence.rows["alerts"] if alert.incident_id in of_step}
    for order in sorted({fact["id"] for fact in evidence.journal.of("bot", "left")}):
        if runs.get(order) not in gathered:
            yield order, "the carrier failed for this order, and no incident contains it"
