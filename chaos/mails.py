"""Judges the mails of a run: one each, and a second one only where nobody could know that the first was sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from chaos.evidence import Evidence

CANCELLED, INCIDENT = ".order-cancelled", "incident-"


def repeated(evidence: Evidence) -> Iterator[tuple[str | None, str]]:
    """Mails that were delivered oftener than promised, as (order, what came how often).

    A step's mail comes once. It comes twice where an attempt to send it ended in doubt; the second sending is then in the
    effect ledger as a repetition. It never comes a third time under one key. A mail from the outbox comes once for each
    try at most.
    """
    runs = {run.key: run.id for run in evidence.rows["runs"]}
    tries = _tries(evidence)
    delivered = Counter((effect.order, effect.key) for effect in evidence.effects if effect.service == "mail")
    for (order, key), count in delivered.items():
        if count == 1:
            continue
        if key.endswith(CANCELLED) or key.startswith(INCIDENT):
            if count > tries.get(key, 0):
                yield order, f"{count} times {key}, tried {tries.get(key, 0)} times"
        elif count > 2:
            yield order, f"{count} times {key}"
        elif not _in_doubt(evidence, runs.get(order or "", -1), key):
            yield order, f"{count} times {key}, although the first sending was not in doubt"


def _tries(evidence: Evidence) -> dict[str, int]:
    keys = {run.id: run.key for run in evidence.rows["runs"]}
    tries: dict[str, int] = {}
    for row in evidence.rows["notifications"]:
        if row.kind == "order-cancelled":
            tries[f"{keys.get(row.run_id)}{CANCELLED}"] = row.tries
        elif row.kind == "incident":
            ids = "-".join(str(one) for one in row.payload["incidents"][:3])
            tries[f"{INCIDENT}{ids}-{row.id}"] = row.tries
    return tries


def _in_doubt(evidence: Evidence, run_id: int, key: str) -> bool:
    """Whether the shop noted, before it repeated this mail, that it did; and an attempt of the step had failed before."""
    noted = [row for row in evidence.rows["operations"] if row.key == key and row.operation == "repeat"]
    failed = [
        event
        for event in evidence.rows["events"]
        if event.run_id == run_id and event.from_state == "Processing" and event.to_state in ("Pending", "Error")
    ]
    return any(event.position == row.position and event.attempt < row.attempt for row in noted for event in failed)
