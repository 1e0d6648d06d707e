"""The shop's export to accounting: events of orders, one CSV file per kind of event. See `docs/accounting.md`.

Each function is called once per batch, in the transaction that changes the orders. So an event is in the journal if and
only if it happened. The event's id keeps out duplicates. The journal decides which machine writes the files, and when.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from supervision.journal import entries
from supervision.postgres import db
from supervision.workflow import AcceptedRun, ClosedRun

KEY = "accounting"
RECEIVED, PROCESSED, CANCELLED, REFUNDED = "order.received", "order.processed", "order.cancelled", "order.refunded"


def received(runs: Sequence[AcceptedRun], numbers: Sequence[str]) -> list[entries.Event]:
    """The events that say that these orders have just been created with these numbers."""
    return [
        (
            RECEIVED,
            f"{run.key}:received",
            {
                "order": run.key,
                "number": number,
                "placed_at": run.submitted_at.isoformat(),
                "customer": run.new.payload["shipping_address"]["name"],
                "country": run.new.payload["shipping_address"]["country"],
                "pieces": sum(line["quantity"] for line in run.new.payload["lines"]),
                "total": run.new.payload["total"],
                "currency": run.new.payload["currency"],
            },
        )
        for run, number in zip(runs, numbers, strict=True)
    ]


def record_processed(runs: Sequence[ClosedRun]) -> None:
    """Record that these orders are done: they are paid and on their way."""
    facts = _facts(runs)
    entries.append(
        KEY,
        [
            (PROCESSED, f"{run.key}:processed", {**_order(run, facts), "charge": known.charge, "shipment": known.shipment})
            for run in runs
            for known in [facts[run.run_id]]
        ],
    )


def record_cancelled(runs: Sequence[ClosedRun]) -> None:
    """Record that these orders ended without effect, and each charge that was refunded for it."""
    facts = _facts(runs)
    events: list[entries.Event] = []
    for run in runs:
        order, refunded = _order(run, facts), json.loads(facts[run.run_id].refunded or "[]")
        events.append((CANCELLED, f"{run.key}:cancelled", {**order, "refunded": bool(refunded)}))
        events += [(REFUNDED, f"{run.key}:refunded:{charge}", {**order, "charge": charge}) for charge in refunded]
    entries.append(KEY, events)


class _Facts(NamedTuple):
    """What other tables store about a run."""

    number: str | None
    charge: str | None
    shipment: str | None
    refunded: str | None


_FACTS = """
SELECT r.id, o.number, charge.result->>'intent', shipment.result->>'shipment', refund.result->>'refunded'
  FROM unnest(%(runs)s::bigint[]) r(id)
  LEFT JOIN orders_order o ON o.run_id = r.id
  LEFT JOIN supervision_stepstate charge ON charge.run_id = r.id AND charge.direction = 'do' AND charge.name = 'charge-payment'
  LEFT JOIN supervision_stepstate shipment ON shipment.run_id = r.id AND shipment.direction = 'do' AND shipment.name = 'book-shipment'
  LEFT JOIN supervision_stepstate refund ON refund.run_id = r.id AND refund.direction = 'undo' AND refund.name = 'charge-payment'
"""


def _facts(runs: Sequence[ClosedRun]) -> dict[int, _Facts]:
    return {run_id: _Facts(*rest) for run_id, *rest in db.run(_FACTS, {"runs": [run.run_id for run in runs]})}


def _order(run: ClosedRun, facts: dict[int, _Facts]) -> dict[str, Any]:
    return {
        "order": run.key,
        "number": facts[run.run_id].number,
        "total": run.payload.get("total"),
        "currency": run.payload.get("currency"),
    }
