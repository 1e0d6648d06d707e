"""Returns as customers, operators and the API see them. Reads only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from functools import cache
from typing import Any

from orders.models import Return, ReturnLine
from orders.payments import cards, transfers
from orders.queries import OrderView, order_view
from orders.records import recalled
from orders.returns import codes
from supervision.insight import queries as engine
from supervision.insight.queries import iso
from supervision.insight.waiting import why_unconsumed, why_waiting
from supervision.models import ArchivedRun, Run, StepState
from supervision.postgres import db
from supervision.states import Direction, ProcessState, RunState

# Failed refunds that are not settled yet, with the return that made them. An archived return has those of its result alone.
_OWED = """
SELECT f.external_id, f.amount,
       (SELECT r.key FROM orders_return t JOIN supervision_run r ON r.key = t.public_id
          JOIN supervision_effect e ON e.run_id = r.id AND e.external_id = f.external_id
         WHERE t.order_key = f.order_key LIMIT 1)
  FROM supervision_finding f
 WHERE f.order_key = ANY (%(orders)s) AND f.service = 'payment' AND f.kind = 'refund_failed' AND f.closed_at IS NULL
"""
# What corrections have paid further, by refunds that paid, and what was paid too much.
_CORRECTED = """
SELECT c.return_key,
       coalesce(sum(CASE WHEN b.id IS NOT NULL THEN b.amount::numeric(18, 2)
                         WHEN coalesce(r.process_state, a.process_state) || '' IN ('Processed', 'Cancelled')
                              AND u.process_state || '' IS DISTINCT FROM 'Processed'
                              AND NOT coalesce(a.body->'steps' @> '[{"direction": "undo", "name": "refund-part",
                                                                    "process_state": "Processed"}]', false)
                              AND p.refunded ~ '^[0-9]{1,12}([.][0-9]{1,3})?$'
                         THEN p.refunded::numeric(18, 2) END), 0),
       sum(c.too_much)
  FROM orders_returncorrection c
  LEFT JOIN supervision_run r ON c.refund <> '' AND r.key = c.refund
  LEFT JOIN supervision_archivedrun a ON c.refund <> '' AND a.key = c.refund
  LEFT JOIN supervision_stepstate s
    ON s.run_id = r.id AND s.direction = 'do' AND s.name = 'refund-part' AND s.process_state || '' = 'Processed'
  LEFT JOIN supervision_stepstate u ON u.run_id = r.id AND u.direction = 'undo' AND u.name = 'refund-part'
 CROSS JOIN LATERAL (
       SELECT coalesce(s.result->>'refunded', (
              SELECT t->'result'->>'refunded' FROM jsonb_array_elements(nullif(a.body->'steps', 'null')) t
               WHERE t->>'name' = 'refund-part' AND t->>'direction' = 'do' AND t->>'process_state' = 'Processed')) AS refunded) p
  LEFT JOIN orders_paymentadjustment b ON c.refund <> '' AND b.external_id = 'payout:' || c.refund AND b.gives_back
 WHERE c.return_key = ANY (%(returns)s::text[]) GROUP BY c.return_key
"""


@dataclass(frozen=True, kw_only=True)
class ReturnView:
    """One return with its state. worth: of the accepted pieces, None until the goods came. refunded: what was paid back for it.

    owed: what was sent back, and has failed to arrive, or waits for its payout by bank transfer (`by_transfer`).
    too_much: what was paid for pieces that did not come, as a correction of the report says.
    """

    row: Return
    lines: Sequence[ReturnLine]
    process_state: str = RunState.PENDING.value
    direction: str = Direction.DO.value
    waiting_because: str | None = None
    finished_at: datetime | None = None
    worth: Decimal | None = None
    refunded: Decimal = Decimal("0.00")
    owed: Decimal = Decimal("0.00")
    run_id: int | None = None
    by_transfer: bool = False
    too_much: Decimal = Decimal("0.00")

    @property
    def waits_for_goods(self) -> bool:
        """Whether the warehouse has not said yet what came."""
        return self.worth is None and self.process_state in (RunState.PENDING, RunState.PROCESSING)


def return_view(public_id: str, *, inside: bool = False) -> ReturnView | None:
    """One return; None if there is none. inside: say why it waits in words for operators."""
    row = Return.objects.filter(public_id=public_id).first()
    if row is not None:
        return views([row], inside=inside)[0]
    its = engine.archived_run(public_id)
    order = engine.archived_run(its.application["order"]) if its and "order" in its.application else None
    kept = [(row, lines) for row, lines in recalled.returns_of(order) if row.public_id == public_id] if order else []
    return _recalled(kept, order, inside=inside)[0] if kept and order else None


def of_order(order_key: str, archived: ArchivedRun | None = None, *, inside: bool = False) -> list[ReturnView]:
    """The returns of an order, the oldest first. One query if there are none, four more if there are.

    archived: of an order whose rows are deleted, the archived run that has them.
    """
    rows = list(Return.objects.filter(order_key=order_key).order_by("pk"))
    known = {row.public_id for row in rows}  # an order that left before the archive had its returns left their rows behind
    kept = [(row, lines) for row, lines in recalled.returns_of(archived) if row.public_id not in known] if archived else []
    return [*(_recalled(kept, archived, inside=inside) if kept and archived else []), *views(rows, inside=inside)]


def _recalled(kept: Sequence[tuple[Return, list[ReturnLine]]], archived: ArchivedRun, *, inside: bool) -> list[ReturnView]:
    """The views of returns that have no rows any more."""
    lines = {row.pk: its for row, its in kept}
    return views([row for row, _lines in kept], lines, recalled.corrected(archived), recalled.paid_out(archived), inside=inside)


def views(
    rows: Sequence[Return],
    kept: Mapping[int, list[ReturnLine]] | None = None,
    further: Mapping[str, tuple[Decimal, Decimal]] | None = None,
    paid_out: Mapping[str, Decimal] | None = None,
    *,
    inside: bool = False,
) -> list[ReturnView]:
    """The views of these returns. kept: their lines, by the return's primary key, where they have no rows any more.

    further: then what corrections have paid, and what was paid too much, by return. paid_out: then what was paid out at the bank.
    """
    if not rows:
        return []
    lines: dict[int, list[ReturnLine]] = {row.pk: list((kept or {}).get(row.pk, ())) for row in rows}
    for line in ReturnLine.objects.filter(of_id__in=lines).order_by("pk") if kept is None else ():
        lines[line.of_id].append(line)
    runs = {run.key: run for run in Run.objects.filter(key__in=[row.public_id for row in rows])}
    steps = engine.steps_of([run.pk for run in runs.values()])
    because = why_waiting([run.pk for run in runs.values() if run.finished_at is None], inside=inside)
    owed = db.run(_OWED, {"orders": [row.order_key for row in rows]})
    if further is None:
        corrected = [row.public_id for row in rows if row.corrections]
        further = {key: (paid, over) for key, paid, over in db.run(_CORRECTED, {"returns": corrected})} if corrected else {}
    if paid_out is None:
        cards = {run.key for run in runs.values() if run.payload.get("intent")}
        paid_out = transfers.paid_out([row.public_id for row in rows if row.public_id not in cards])
    view_of = cache(order_view)  # several returns of one order wait to be paid out
    found = []
    for row in rows:
        run, its = runs.get(row.public_id), []
        if run is not None:
            its = steps.get(run.pk, [])
        elif archived := engine.archived_run(row.public_id):
            run, its = archived.run, engine.in_order(archived.steps)
        view = _view(row, lines[row.pk], run, its, because, owed, paid_out.get(row.public_id), view_of)
        if row.public_id in further:
            paid, too_much = further[row.public_id]
            view = replace(view, refunded=view.refunded + paid, too_much=too_much)
        found.append(view)
    return found


def _view(
    row: Return, lines: list[ReturnLine], run: Run | None, steps: Sequence[StepState], because: Any, owed: Any,
    paid_out: Decimal | None, view_of: Callable[[str], OrderView | None],
) -> ReturnView:  # fmt: skip
    if run is None:
        return ReturnView(row=row, lines=lines, waiting_because=why_unconsumed([row.public_id]).get(row.public_id))
    looked_at = all(line.accepted is not None for line in lines)
    worth = sum((line.unit_price * (line.accepted or 0) for line in lines), Decimal("0.00"))
    paid = [step for step in steps if step.name == codes.REFUND and step.direction == Direction.DO]
    result = (paid[0].result or {}) if paid and paid[0].process_state == ProcessState.PROCESSED else {}
    undo = next((step for step in steps if step.name == codes.REFUND and step.direction == Direction.UNDO), None)
    came_back = undo is not None and undo.process_state == ProcessState.PROCESSED
    came_back = came_back and not (run.payload.get("intent") and result.get("refunds"))  # the service has paid: it stays with its card
    refunded = paid_out if paid_out is not None else codes.amount_said(None if came_back else result.get("refunded"))
    told = paid_out is not None or (paid and paid[0].process_state == ProcessState.PROCESSED)
    if run.process_state == RunState.CANCELLED and undo is not None and not told:
        refunded = cards.unsaid(row.public_id)
    made = result.get("refunds") or ()
    step = paid[0] if paid and paid_out is None and run.direction == Direction.DO and not run.payload.get("intent") else None
    stopped = step is not None and step.process_state == ProcessState.ERROR  # after 30 days: a payout counts all the same
    by_transfer = stopped or (step is not None and step.process_state == ProcessState.PENDING and step.awaits == codes.PAID_OUT)
    due = transfers.owed(view_of(row.order_key), row.public_id, worth) if by_transfer else Decimal("0.00")
    failed = sum((amount for name, amount, of in owed if of == row.public_id or name in made), Decimal("0.00"))
    return ReturnView(
        row=row,
        lines=lines,
        run_id=run.pk,
        process_state=run.process_state,
        direction=run.direction,
        waiting_because=because.get(run.pk),
        finished_at=run.finished_at,
        worth=worth if looked_at else None,
        refunded=(refunded - failed).quantize(Decimal("0.01")),
        owed=(failed + due).quantize(Decimal("0.01")),
        by_transfer=due > 0,
    )


def answer(view: ReturnView) -> dict[str, Any]:
    """The return as the API answers it: JSON values only."""
    return {
        "id": view.row.public_id,
        "number": view.row.number,
        "order": view.row.order_key,
        "process_state": str(view.process_state),
        "direction": str(view.direction),
        "waiting_because": view.waiting_because,
        "reason": view.row.reason,
        "currency": view.row.currency,
        "lines": [
            {
                "sku": line.sku,
                "name": line.name,
                "quantity": line.quantity,
                "unit_price": str(line.unit_price),
                "accepted": line.accepted,
                "refused": line.refused,
            }
            for line in view.lines
        ],
        "worth": None if view.worth is None else str(view.worth),
        "refunded": str(view.refunded),
        "owed": str(view.owed),
        "too_much": str(view.too_much),
        "corrections": view.row.corrections,
        "created_at": iso(view.row.created_at),
        "finished_at": iso(view.finished_at),
    }
