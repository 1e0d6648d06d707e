"""Cancel orders without undo."""

from __future__ import annotations

from typing import Any

from supervision.management.bulk import BulkCommand
from supervision.operations.ending import abandoning


class Command(BulkCommand):
    """What remote services did for the orders stays; steps that have not begun never begin."""

    verb = "abandon"
    help = (
        "Cancel orders without undo: a charge stays charged, a booked parcel stays booked. What our own database holds for them is "
        "given back, unless their goods are booked. They end Cancelled. `plan ID abandon` shows what would stay. Refused once an "
        "order is Processed or Cancelled, and while an undo step is running."
    )

    def act(self, key: str, *, by: Any, reason: str, options: dict[str, Any]) -> str:
        return abandoning.abandon(key, by=by, reason=reason, plan_version=options["plan_version"])
