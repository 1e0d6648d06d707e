"""The parcels of orders as customers, operators and the API see them: what was booked, and what the carrier told since."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.utils.translation import gettext as _

from orders.formats import moment
from orders.parcels import states
from orders.parcels.splitting import BOOKING
from supervision.agent import CHILD
from supervision.insight.queries import iso
from supervision.models import StepState
from supervision.postgres import db
from supervision.states import Direction, ProcessState

AGENT = "shipping"
PREPARING, CANCELLED = "preparing", "cancelled"
SHOWN = (PREPARING, states.BOOKED, states.PICKED_UP, states.DELIVERED, states.RETURNED, CANCELLED)

# The parcels of orders that are split, from their child runs.
_OF_CHILDREN = """
SELECT p.id, coalesce(s.idempotency_key, c.key), coalesce(s.process_state, 'Pending'), coalesce(s.attempt, 0), s.result,
       c.state = 'Cancelled' OR EXISTS (SELECT FROM supervision_stepstate u
                                         WHERE u.run_id = r.id AND u.direction = 'undo' AND u.process_state || '' = 'Processed'),
       c.payload::jsonb->'item'->>'warehouse'
  FROM supervision_run p
  JOIN supervision_child c ON c.parent_key = p.key AND c.step = %(step)s AND c.state <> 'Replaced'
  LEFT JOIN supervision_run r ON r.key = c.key
  LEFT JOIN supervision_stepstate s ON s.run_id = r.id AND s.direction = 'do' AND s.agent = 'shipping'
 WHERE p.id = ANY (%(runs)s)
 ORDER BY p.id, c.number
"""
# The same of archived orders: their parcels' runs are in the archive, too.
_OF_ARCHIVED = """
SELECT a.run_id, s.step->>'idempotency_key', s.step->>'process_state', (s.step->>'attempt')::int, s.step->'result',
       c.child->>'state' = 'Cancelled' OR k.body->'steps' @> '[{"direction": "undo", "process_state": "Processed"}]',
       k.body->'run'->'payload'->>'warehouse'
  FROM supervision_archivedrun a
 CROSS JOIN LATERAL jsonb_array_elements(nullif(a.body->'children', 'null')) WITH ORDINALITY c(child, place)
  JOIN supervision_archivedrun k ON k.key = c.child->>'key'
 CROSS JOIN LATERAL jsonb_array_elements(k.body->'steps') s(step)
 WHERE a.run_id = ANY (%(runs)s) AND c.child->>'step' = %(step)s AND c.child->>'state' <> 'Replaced'
   AND s.step->>'direction' = 'do' AND s.step->>'agent' = 'shipping'
 ORDER BY a.run_id, c.place
"""
_TOLD = "SELECT key, state, changed_at FROM orders_parcel WHERE key = ANY (%(keys)s)"


@dataclass(frozen=True, kw_only=True)
class ParcelView:
    """One parcel. key: the idempotency key of its booking. state: `preparing` before its booking, `cancelled` once it is undone.

    begun: whether its booking was ever tried, so that the carrier may have told of it. warehouse: of an order that is split.
    """

    key: str
    state: str
    shipment: str = ""
    tracking_number: str = ""
    changed_at: datetime | None = None
    begun: bool = True
    warehouse: str = ""

    def answer(self) -> dict[str, Any]:
        """The parcel in the order answer of the API."""
        return {
            "id": self.shipment or None,
            "state": self.state,
            "tracking_number": self.tracking_number or None,
            "changed_at": iso(self.changed_at),
            "warehouse": self.warehouse or None,
        }

    def __str__(self) -> str:
        since = " " + _("since %(at)s") % {"at": moment(self.changed_at)} if self.changed_at else ""
        return f"{self.tracking_number or self.shipment or '-'} {_(self.state)}{since}"


Told = Mapping[str, tuple[str, datetime | None]]


def of(steps: Mapping[int, Sequence[StepState]], before: Told | None = None) -> dict[int, Sequence[ParcelView]]:
    """The parcels of these runs, by run: one query if the booking of any has begun, and one more if any order is split, or two.

    before: what the carrier had told of parcels that have no row any more, by key.
    """
    found = {run_id: [parcel for step in its for parcel in _booked(step, its)] for run_id, its in steps.items()}
    split = [run_id for run_id, its in steps.items() if any(_is_split(step) for step in its)]
    for statement in (_OF_CHILDREN, _OF_ARCHIVED):
        runs = [run_id for run_id in split if not found[run_id]]
        rows = db.run(statement, {"runs": runs, "step": BOOKING}) if runs else []
        for run_id, key, state, attempt, result, undone, warehouse in rows:
            found[run_id] += _parcel(key, state, attempt, result, undone, warehouse or "")
    for run_id in split:
        if not found[run_id]:  # an archived order whose parcels' runs are not in the archive yet, or not any more
            found[run_id] = [parcel for step in steps[run_id] if _is_split(step) for parcel in _in_results(step)]
    return _told(found, before or {})


def _is_split(step: StepState) -> bool:
    return step.agent == CHILD and step.name == BOOKING and step.direction == Direction.DO


def _booked(step: StepState, steps: Sequence[StepState]) -> Iterable[ParcelView]:
    if step.agent != AGENT or step.direction != Direction.DO:
        return []
    undone = any(
        one.position == step.position and one.direction == Direction.UNDO and one.process_state == ProcessState.PROCESSED for one in steps
    )
    return _parcel(step.idempotency_key, step.process_state, step.attempt, step.result, undone)


def _parcel(key: str, process_state: str, attempt: int, result: Any, undone: bool, warehouse: str = "") -> list[ParcelView]:
    """One parcel; none where a cancelled order never had one."""
    result = result if isinstance(result, dict) else {}
    state = states.BOOKED if process_state == ProcessState.PROCESSED else PREPARING
    if undone or process_state in (ProcessState.CANCELLED, ProcessState.SKIPPED):
        if not result.get("shipment"):
            return []
        state = CANCELLED
    parcel = ParcelView(
        key=key,
        state=state,
        shipment=str(result.get("shipment") or ""),
        tracking_number=str(result.get("tracking_number") or ""),
        begun=attempt > 0,
        warehouse=warehouse,
    )
    return [parcel]


def _in_results(step: StepState) -> Iterable[ParcelView]:
    results = (step.result or {}).get("results") if isinstance(step.result, dict) else None
    for index, parcel in enumerate(results if isinstance(results, list) else []):
        if isinstance(parcel, Mapping) and parcel.get(BOOKING):
            key = f"{step.idempotency_key.rsplit(':', 3)[0]}:{BOOKING}[{index}]:child:{BOOKING}:do:1"
            yield from _parcel(key, ProcessState.PROCESSED, 1, parcel[BOOKING], False)


def _told(parcels: Mapping[int, Sequence[ParcelView]], before: Told) -> dict[int, Sequence[ParcelView]]:
    """The same, with what the carrier told: also of a parcel whose booking has not been answered yet, and of a cancelled one."""
    keys = [parcel.key for its in parcels.values() for parcel in its if parcel.begun]
    told = {**before, **{key: (state, at) for key, state, at in (db.run(_TOLD, {"keys": keys}) if keys else ())}}
    return {run_id: [_with(parcel, *told.get(parcel.key, (states.BOOKED, None))) for parcel in its] for run_id, its in parcels.items()}


def _with(parcel: ParcelView, state: str, changed_at: datetime | None) -> ParcelView:
    if state == states.DELETED:
        return replace(parcel, state=CANCELLED, changed_at=changed_at)
    return parcel if state == states.BOOKED else replace(parcel, state=state, changed_at=changed_at)
