"""Cancel orders."""

from __future__ import annotations

from typing import Any

from supervision.deadletters import of_orders
from supervision.management.bulk import BulkCommand
from supervision.operations import operator_verbs
from supervision.states import RunState


class Command(BulkCommand):
    """Steps that are done are undone; steps that have not begun never begin."""

    verb = "cancel"
    help = (
        "Cancel orders, also before they are consumed: steps that have not begun never begin, steps that are done are "
        "undone. Refused once an order is Processed or Cancelled."
    )

    def act(self, key: str, *, by: Any, reason: str, options: dict[str, Any]) -> str:
        return operator_verbs.cancel(key, by=by, reason=reason, plan_version=options["plan_version"])

    def remark(self, key: str, state: str) -> str:
        letter = of_orders.letter_of(key) if state == RunState.PENDING else None
        if letter is None:
            return ""
        return f"The cancellation is kept: if the order is requeued, it ends Cancelled. {of_orders.in_words(letter)}"
