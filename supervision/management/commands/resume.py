"""End a pause of an order, an agent, a workflow, or all."""

from __future__ import annotations

from typing import Any

from supervision.management.acting import actor
from supervision.management.pausing import PauseCommand, facts
from supervision.operations import pauses


class Command(PauseCommand):
    """Work continues at once."""

    help = (
        "Resume one order, one agent, one workflow or everything: the work continues at once. Each pause is lifted "
        "separately: an order that is paused itself stays paused when everything else is resumed."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        by, reason = actor(options)
        scope, name = self.target(options)
        ended = pauses.lift(scope, name, by=by, reason=reason)
        if options["json"]:
            self.say_json(facts(ended))
            return
        self.stdout.write(f"{pauses.label(scope, name)} is resumed")
        for other in pauses.active():
            self.stdout.write(f"still paused: {pauses.label(other.scope, other.name)} ({other.paused_by}: {other.reason})")
