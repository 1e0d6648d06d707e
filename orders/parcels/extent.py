"""How much of an order was booked: an operator may skip the booking, or that of one of several parcels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from orders.parcels.splitting import BOOKING
from supervision.models import StepState
from supervision.states import Direction, ProcessState

ALL, PART, NONE = "all", "part", "none"


def of(steps: Iterable[StepState]) -> str:
    """ALL, PART or NONE, from the steps of an order whose booking has ended."""
    booking = next((step for step in steps if step.name == BOOKING and step.direction == Direction.DO), None)
    if booking is None:
        return ALL
    return NONE if booking.process_state == ProcessState.SKIPPED else _of_result(booking.result)


def of_results(results: Mapping[str, Any]) -> str:
    """The same from the results that a later step reads: a booking that was skipped has none."""
    return _of_result(results[BOOKING]) if BOOKING in results else NONE


def of_runs(run_ids: Iterable[int]) -> dict[int, str]:
    """The same of many orders, by run. Archived ones are left out."""
    bookings = StepState.objects.filter(run_id__in=list(run_ids), name=BOOKING, direction=Direction.DO)
    return {step.run_id: of([step]) for step in bookings}


def _of_result(result: Any) -> str:
    results = result.get("results") if isinstance(result, Mapping) else None
    if not isinstance(results, list) or not results:  # one parcel, or a result by hand
        return ALL
    booked = sum(1 for one in results if isinstance(one, Mapping) and one.get(BOOKING))
    return ALL if booked == len(results) else PART if booked else NONE
