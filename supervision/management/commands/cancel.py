"""Cancel orders."""

from __future__ import annotations

from typing import Any

from supervision.management.acting import OperatorCommand
from supervision.operations import operator_verbs


class Command(OperatorCommand):
    """Steps that are done are undone; steps that have not begun never begin."""

    help = (
        "Cancel orders, also before they are consumed: steps that have not begun never begin, steps that are done are "
        "undone. Refused once an order is Processed or Cancelled."
    )

    def act(self, key: str, *, by: Any, reason: str, options: dict[str, Any]) -> str:
        return operator_verbs.cancel(key, by=by, reason=reason)
