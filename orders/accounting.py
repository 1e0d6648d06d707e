"""The shop's export to accounting: events of orders, one CSV file per kind of event. See `docs/accounting.md`.

Each function is called once per batch, in the transaction that changes the orders. So an event is in the journal if and
only if it happened. The event's id keeps out duplicates. The journal decides which machine writes the files, and when.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from orders import staying
from supervision.journal import entries
from supervision.postgres import db
from supervision.workflow import AcceptedRun, ClosedRun

KEY = "accounting"
RECEIVED, PROCESSED, CANCELLED, REFUNDED = "order.received", "order.processed", "order.cancelled", "order.refunded"
RETURNED, PARTLY_REFUNDED, DOCUMENT = "order.returned", "order.partly_refunded", "document.issued"
CHANGED, CORRECTED = "order.changed", "return.corrected"
# Notifications, for `orders.documents`.
ISSUE_INVOICES, ISSUE_CREDIT_NOTES, ISSUE_REFUND_NOTES = "issue-invoices", "issue-credit-notes", "issue-refund-notes"


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
                "country": run.new.payload["shipping_address"]["country"],
                "pieces": sum(line["quantity"] for line in run.new.payload["lines"]),
                "total": run.new.payload["total"],
                "currency": run.new.payload["currency"],
            },
        )
        for run, number in zip(runs, numbers, strict=True)
    ]


def record_processed(runs: Sequence[ClosedRun]) -> None:
    """Record that these orders are done: they are paid and on their way. One notification lets their invoices be issued."""
    facts = _facts(runs, _ISSUE)
    entries.append(
        KEY,
        [
            (PROCESSED, f"{run.key}:processed", {**_order(run, facts), "charge": known.charge, "shipment": known.shipment})
            for run in runs
            for known in [facts[run.run_id]]
        ],
    )


def record_cancelled(runs: Sequence[ClosedRun]) -> None:
    """Record that these orders ended cancelled, each charge that was refunded for it, and the one that an operator has kept."""
    facts = _facts(runs)
    given_back = dict(db.run(_REFUNDED, {"runs": [run.run_id for run in runs]}))
    left = staying.left_of([run.run_id for run in runs])
    events: list[entries.Event] = []
    for run in runs:
        order, refunded = _order(run, facts), given_back.get(run.run_id, [])
        kept = facts[run.run_id].charge if staying.PAYMENT in left.get(run.run_id, ()) else None
        events.append((CANCELLED, f"{run.key}:cancelled", {**order, "refunded": bool(refunded), "kept": kept}))
        events += [(REFUNDED, f"{run.key}:refunded:{charge}", {**order, "charge": charge}) for charge in refunded]
    entries.append(KEY, events)


def record_changed(key: str, payload: Mapping[str, Any], *, before: Decimal) -> None:
    """Record that an operator has made this order smaller. before: its total until now; the payload has the new one."""
    pieces = sum(int(line["quantity"]) for line in payload["lines"])
    same = {name: payload.get(name) for name in ("number", "total", "currency")}
    facts = {"order": key, **same, "before": str(before), "pieces": pieces}
    entries.append(KEY, [(CHANGED, f"{key}:changed:{pieces}", facts)])


class _Facts(NamedTuple):
    """What other tables store about a run."""

    number: str | None
    charge: str | None
    shipment: str | None


# One row for all of these orders, and no statement more: their numbers are given later, so that no order waits for a counter.
_ISSUE = """
WITH told AS (INSERT INTO supervision_notification (kind, payload)
              VALUES ('issue-invoices', jsonb_build_object('runs', to_jsonb(%(runs)s::bigint[]))))
"""
# An order that is split has several shipments, in the results of its parcels' runs.
_FACTS = """
SELECT r.id, o.number, charge.result->>'intent',
       coalesce(shipment.result->>'shipment', nullif(array_to_string(ARRAY(
           SELECT jsonb_path_query(shipment.result, '$.results[*]."book-shipment".shipment') #>> '{}'), ' '), ''))
  FROM unnest(%(runs)s::bigint[]) r(id)
  LEFT JOIN orders_order o ON o.run_id = r.id
  LEFT JOIN supervision_stepstate charge
    ON charge.run_id = r.id AND charge.direction = 'do' AND charge.name IN ('charge-payment', 'capture-payment')
  LEFT JOIN supervision_stepstate shipment ON shipment.run_id = r.id AND shipment.direction = 'do' AND shipment.name = 'book-shipment'
"""

# An order that reserves the money first has two such steps, which may both name the same charge.
_REFUNDED = """
SELECT s.run_id, array_agg(DISTINCT c.charge)
  FROM supervision_stepstate s
 CROSS JOIN LATERAL jsonb_array_elements_text(
       CASE WHEN jsonb_typeof(s.result->'refunded') = 'array' THEN s.result->'refunded' ELSE '[]' END) c(charge)
 WHERE s.run_id = ANY (%(runs)s::bigint[]) AND s.direction = 'undo' AND s.agent = 'payment'
 GROUP BY s.run_id
"""


def _facts(runs: Sequence[ClosedRun], first: str = "") -> dict[int, _Facts]:
    return {run_id: _Facts(*rest) for run_id, *rest in db.run(first + _FACTS, {"runs": [run.run_id for run in runs]})}


def _order(run: ClosedRun, facts: dict[int, _Facts]) -> dict[str, Any]:
    return {
        "order": run.key,
        "number": facts[run.run_id].number,
        "total": run.payload.get("total"),
        "currency": run.payload.get("currency"),
    }
