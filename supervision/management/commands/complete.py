"""Record that an order's failed or waiting step was done by hand."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import CommandError, CommandParser

from supervision.management.acting import OperatorCommand
from supervision.management.base import at_least
from supervision.management.planned import add_plan_version, check_plan_version
from supervision.operations import completing


class Command(OperatorCommand):
    """The step becomes Processed with this result and the order continues."""

    help = (
        "Record that the failed or waiting step of orders was done by hand, with its result, and continue with the next. "
        "Later steps read the result as if the step's agent had returned it. If the order is undone later, the step is undone too."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--result", default="{}", metavar="JSON", help="a JSON object: what the step's agent would have returned")
        parser.add_argument("--step", metavar="NAME", help="the step, where several have failed or wait")
        add_plan_version(parser)
        parser.add_argument("--attempt", type=at_least(0), metavar="N", help="only if the step is still at the attempt you saw")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            options["result"] = json.loads(options["result"])
        except (ValueError, RecursionError) as problem:
            raise CommandError(f"--result: expected a JSON object: {problem}") from None
        if options["attempt"] is not None and len(options["ids"]) > 1:
            raise CommandError("--attempt belongs to one order: give a single ID with it")
        check_plan_version(options)
        super().handle(*args, **options)

    def act(self, key: str, *, by: Any, reason: str, options: dict[str, Any]) -> str:
        seen = {name: options[name] for name in ("result", "step", "attempt", "plan_version")}
        return completing.complete(key, by=by, reason=reason, **seen)
