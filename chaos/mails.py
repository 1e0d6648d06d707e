"""Checks the mails of a run: each was sent once, or twice where the outcome of the first sending was unknown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from chaos.evidence import Evidence

CANCELLED, INCIDENT = ".order-cancelled", "incident-"


def repeated(evidence: Evidence) -> Iterator[tuple[str | None, str]]:
    """Mails that were delivered more often than promised, as (order, description).

    A step's mail is delivered once. It may be delivered twice if the outcome of an attempt to send it was unknown. The
    effect ledger then records the second sending as a repetition. It is never delivered three times under one idempotency
    key. A mail from the outbox is delivered at most once for each try.
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
            yield order, f"{count} times {key}, although the outcome of the first sending was known"


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
    """Whether the effect ledger records a repetition of this mail, and an earlier attempt of its step had failed."""
    noted = [row for row in evidence.rows["operations"] if row.key == key and row.operation == "repeat"]
    failed = [
        event
        for event in evidence.rows["events"]
        if event.run_id == run_id and event.from_state == "Processing" and event.to_state in ("Pending", "Error")
    ]
    return any(event.position == row.position and event.attempt < row.attempt for row in noted for event in failed)
