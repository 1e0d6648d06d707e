"""Skip an order's failed step."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from supervision.management.bulk import BulkCommand
from supervision.operations import operator_verbs


class Command(BulkCommand):
    """The failed step becomes Skipped and the order continues."""

    verb = "skip"
    help = (
        "Skip the failed step of orders in Error and continue with the next: for a step that an operator has done by hand, "
        "or that the order does not need."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--step", metavar="NAME", help="the failed step to skip, where several branches of an order have failed")

    def act(self, key: str, *, by: Any, reason: str, options: dict[str, Any]) -> str:
        return operator_verbs.skip(key, by=by, reason=reason, step=options["step"], plan_version=options["plan_version"])
