"""The plan of an order whose products come from several warehouses: its parcels are booked side by side, each by a run of its own.

The steps and their names are those of the plan with one parcel (`orders.workflows`). Only `book-shipment` differs: it starts a run
`ship-parcel` for each parcel. Each has its own idempotency key and tracking number, and is resubmitted and undone alone.
`orders.workflows` registers them.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

from orders.intake import check_amendment
from orders.parcels import splitting
from supervision import ForEach, Step, Workflow
from supervision.errors import UnreadableSubmission
from supervision.workflow import Intake, NewRun

AT_ONCE = 5  # parcels of one order


class ParcelIntake(Intake):
    """Reads what `book-shipment` starts a parcel's run with; no other program submits one."""

    def read(self, body: str) -> NewRun:
        """The run's payload: `{"warehouse", "lines", "shipping_address"}`. Raises UnreadableSubmission."""
        try:
            given: dict[str, Any] = json.loads(body)
            parcel, address = given["item"], given["parent"]["shipping_address"]
            lines = [{"sku": str(line["sku"]), "quantity": int(line["quantity"])} for line in parcel["lines"]]
            payload = {"warehouse": str(parcel["warehouse"]), "lines": lines, "shipping_address": dict(address)}
        except (ValueError, TypeError, KeyError, RecursionError) as problem:
            expected = {"": ["expected item.warehouse, item.lines and parent.shipping_address"]}
            raise UnreadableSubmission(f"the body is no parcel: {type(problem).__name__}", expected) from problem
        return NewRun(payload=payload)

    def check_amendment(self, changed: Any) -> None:
        """The rules of an order request."""
        check_amendment(changed)


SHIP_PARCEL = Workflow(
    splitting.PARCEL_WORKFLOW,
    (Step(splitting.BOOKING, agent="shipping", complete_within=timedelta(seconds=30), amendable=("shipping_address",)),),
    intake=ParcelIntake(),
)


def split(order: Workflow) -> Workflow:
    """The version of this workflow whose orders travel in several parcels: only the booking differs."""
    booking = ForEach(
        splitting.BOOKING,
        workflow=splitting.PARCEL_WORKFLOW,
        items=splitting.parcels,
        parent=splitting.shared,
        at_once=AT_ONCE,
    )
    steps = tuple(booking if step.name == splitting.BOOKING else step for step in order.steps)
    return replace(order, version=splitting.SPLIT + order.version, by_choice=True, steps=steps)
