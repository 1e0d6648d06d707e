"""Run an order's failed step again."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError, CommandParser

from supervision.management.acting import OperatorCommand
from supervision.management.base import at_least
from supervision.operations import operator_verbs


class Command(OperatorCommand):
    """The failed step runs again; the steps that are done stay done."""

    help = (
        "Run the failed step of orders in Error again, once the cause of the failure is removed. Steps that are done are "
        "kept. The step keeps its idempotency key while its effect is unknown, so that the service cannot do it twice. "
        "--new-generation takes a new key: use it only after you have looked at the service."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--attempt", type=at_least(0), metavar="N", help="only if the step is still at the attempt you saw")
        parser.add_argument("--new-generation", action="store_true", help="use a new idempotency key: the service sees a new request")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["attempt"] is not None and len(options["ids"]) > 1:
            raise CommandError("--attempt belongs to one order: give a single ID with it")
        super().handle(*args, **options)

    def act(self, key: str, *, by: Any, reason: str, options: dict[str, Any]) -> str:
        return operator_verbs.resubmit(key, by=by, reason=reason, attempt=options["attempt"], new_generation=options["new_generation"])
