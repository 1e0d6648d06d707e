"""Undo orders in Error."""

from __future__ import annotations

from typing import Any

from supervision.management.bulk import BulkCommand
from supervision.operations import operator_verbs


class Command(BulkCommand):
    """Every step that was done, or may have been, is undone."""

    verb = "compensate"
    help = (
        "Undo orders in Error: every step that was done, or may have been, is undone in reverse order; the order ends "
        "Cancelled, with a net effect of nothing."
    )

    def act(self, key: str, *, by: Any, reason: str, options: dict[str, Any]) -> str:
        return operator_verbs.compensate(key, by=by, reason=reason, plan_version=options["plan_version"])
