"""Show what a verb would do to an order, before it is done."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError, CommandParser

from supervision.management.acting import OrderCommand
from supervision.management.base import at_least
from supervision.management.planned import say_plan

VERBS = ("resubmit", "skip", "complete", "compensate", "cancel", "abandon", "move", "resume")


class Command(OrderCommand):
    """Prints the plan that the console shows before a verb, and the API at `plan/`. Changes nothing."""

    help = (
        "Show what a verb would do to an order, and change nothing: the steps that it runs, keeps or undoes, in order, and their "
        "idempotency keys. A key that is `reused` has been sent to the service before."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("id", metavar="ID", help="as `orders` lists it")
        parser.add_argument(
            "verb", nargs="?", choices=VERBS, default=VERBS[0], metavar="VERB", help=f"{', '.join(VERBS)} (default resubmit)"
        )
        parser.add_argument("--step", metavar="NAME", help="with `resume`: the step from which the order goes on")
        parser.add_argument("--to", type=at_least(1), metavar="VERSION", help="with `move`: the workflow's version; without it, the newest")
        parser.add_argument("--json", action="store_true", help="one JSON object, as the API answers it")

    def handle(self, *args: Any, **options: Any) -> None:
        verb = options["verb"]
        if bool(options["step"]) != (verb == "resume"):
            raise CommandError("--step NAME belongs to `resume`, which needs it")
        if options["to"] and verb != "move":
            raise CommandError("--to belongs to `move`")
        say_plan(self, options["id"], verb, step=options["step"], to=options["to"], as_json=options["json"])
