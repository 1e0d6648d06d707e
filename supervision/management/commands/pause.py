"""Stop claims of an order, an agent, a workflow, or all."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError, CommandParser

from supervision.insight.queries import iso
from supervision.management.acting import actor
from supervision.management.pausing import PauseCommand, facts
from supervision.operations import pauses


class Command(PauseCommand):
    """Running steps finish and no more steps begin; orders are still accepted and taken up."""

    help = (
        "Pause one order, one agent, one workflow or everything: running steps finish, no more steps begin, and orders are "
        "still accepted and taken up. A pause survives restarts. It ends with `resume`, or by itself at --until. A second "
        "pause of the same target replaces the reason and the time of the first."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--until", metavar="WHEN", help="a time such as 2026-11-21T14:05, or a duration such as 15m or 2h")

    def handle(self, *args: Any, **options: Any) -> None:
        by, reason = actor(options)
        try:
            until = pauses.read_until(options["until"]) if options["until"] is not None else None
        except ValueError as problem:
            raise CommandError(f"--until: {problem}") from problem
        scope, name = self.target(options)
        made = pauses.pause(scope, name, reason=reason, by=by, until=until)
        if options["json"]:
            self.say_json(facts(made))
        else:
            self.stdout.write(f"{pauses.label(scope, name)} is paused until {iso(made.until) or 'an operator resumes it'}")
