"""Cancel orders."""

from __future__ import annotations

from typing import Any

from orders.management.base import OperatorCommand
from supervision import operations


class Command(OperatorCommand):
    """What is done is undone; what has not begun never begins."""

    help = (
        "Cancel orders, also before they are consumed: what has not begun never begins, what is done is undone. "
        "Refused once an order is Processed or Cancelled."
    )

    def act(self, key: str, *, by: Any, reason: str, options: dict[str, Any]) -> str:
        return operations.cancel(key, by=by, reason=reason)
