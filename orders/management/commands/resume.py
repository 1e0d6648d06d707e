"""Let what is paused go on."""

from __future__ import annotations

from typing import Any

from orders.management.pausing import PauseCommand, facts
from supervision import pauses


class Command(PauseCommand):
    """The work goes on at once."""

    help = (
        "Resume one order, one agent, one workflow or everything: the work goes on at once. Each pause is lifted by itself: "
        "an order that is paused stays so when everything else is resumed."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        by, reason = self.who_and_why(options)
        scope, name = self.target(options)
        ended = pauses.lift(scope, name, by=by, reason=reason)
        if options["json"]:
            self.say_json(facts(ended))
            return
        self.stdout.write(f"{pauses.label(scope, name)} is resumed")
        for other in pauses.active():
            self.stdout.write(f"still paused: {pauses.label(other.scope, other.name)} ({other.paused_by}: {other.reason})")
