"""Go on without an order's failed step."""

from __future__ import annotations

from typing import Any

from orders.management.base import OperatorCommand
from supervision import operations


class Command(OperatorCommand):
    """The failed step is Skipped and the order goes on."""

    help = (
        "Skip the failed step of orders in Error and go on with the next: for a step that somebody has done by hand, or "
        "that the order can do without."
    )

    def act(self, key: str, *, by: Any, reason: str, options: dict[str, Any]) -> str:
        return operations.skip(key, by=by, reason=reason)
