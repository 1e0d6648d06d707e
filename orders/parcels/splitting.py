"""Which orders are split, and into which parcels: pure rules on an order's payload.

A line names its warehouse only in an order whose products come from two or more of them. Such an order gets one parcel for each
warehouse, in the order of its lines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from supervision.workflow import Facts, newest

# Version N of `fulfil-order` books one parcel, and version SPLIT + N the same in several parcels.
SPLIT = 100
ORDER_WORKFLOW = "fulfil-order"
BOOKING = "book-shipment"  # the step of both plans
PARCEL_WORKFLOW = "ship-parcel"
USUAL_WAREHOUSE = "main"


def order_of(run_key: str) -> str:
    """The public id of the order that this run belongs to: the run of a parcel is named `ORDER:book-shipment[0]:child`."""
    return run_key.partition(f":{BOOKING}[")[0] if run_key.endswith(":child") else run_key


def warehouse_of(line: Mapping[str, Any]) -> str:
    """The warehouse of a line."""
    return str(line.get("warehouse") or USUAL_WAREHOUSE)


def version_for(lines: Sequence[Mapping[str, Any]], usual: int | None) -> int | None:
    """The version that an order with these lines gets, which name their warehouses. usual: that of an order that is not split."""
    if len({warehouse_of(line) for line in lines}) < 2:
        return usual
    return SPLIT + (usual or newest(ORDER_WORKFLOW).version)


def parcels(facts: Facts) -> list[dict[str, Any]]:
    """The parcels of an order: `{"warehouse", "lines"}` each."""
    found: dict[str, list[dict[str, Any]]] = {}
    for line in facts.payload["lines"]:
        found.setdefault(warehouse_of(line), []).append({"sku": line["sku"], "quantity": line["quantity"]})
    return [{"warehouse": warehouse, "lines": lines} for warehouse, lines in found.items()]


def shared(facts: Facts) -> dict[str, Any]:
    """What every parcel of an order needs."""
    return {"shipping_address": facts.payload["shipping_address"]}


def trackings(booked: Mapping[str, Any] | None) -> list[str]:
    """The tracking numbers of an order that is split, from the result of its booking. One that was written by hand may have none."""
    results = (booked or {}).get("results")
    parcels = [one.get(BOOKING) for one in results if isinstance(one, Mapping)] if isinstance(results, list) else []
    return [str(parcel["tracking_number"]) for parcel in parcels if isinstance(parcel, Mapping) and parcel.get("tracking_number")]
