"""Show one order with its steps and its history."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from supervision.insight import family, queries, waiting
from supervision.insight.directory import Entry
from supervision.insight.queries import iso
from supervision.management.acting import OrderCommand, find_order
from supervision.models import DeadLetter
from supervision.runtime.humanize import iso_times


class Command(OrderCommand):
    """Prints the order's facts, its steps and its history."""

    help = (
        "Show one order, as `orders` lists them: the facts, every step with its attempts and deadlines, and "
        "its history, late answers included. --json prints the API's order answer with `parent`, `children` and `events` beside it."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("id", metavar="ID", help="as `orders` lists it")
        parser.add_argument("--json", action="store_true", help="one JSON object instead of text")

    def handle(self, *args: Any, **options: Any) -> None:
        with iso_times():
            view = find_order(options["id"])
        history = queries.timeline(view.run_id) if view.run_id else []
        if options["json"]:
            self.say_json(view.answer | family.of(view.key).answer | {"events": [entry_facts(entry) for entry in history]})
            return
        self.say_order(view)
        self.say_family(family.of(view.key))
        if view.steps:
            self.stdout.write("")
            self.say_steps(view)
        if history:
            self.stdout.write("")
            self.say_history(history)

    def say_order(self, view: Entry) -> None:
        """Print the order's own facts."""
        facts = view.answer
        because = f" ({facts['waiting_because']})" if facts["waiting_because"] else ""
        self.stdout.write(view.title)
        self.stdout.write(f"state {facts['process_state']}, direction {facts['direction']}{because}")
        silent = [] if facts["finished_at"] else waiting.no_workers()
        if silent:
            self.stdout.write(f"{'; '.join(silent)}: start the workers, for example with manage.py work all")
        self.stdout.write(f"placed {facts['created_at']}, finished {facts['finished_at'] or '-'}")
        if facts["cancel_requested_at"]:
            self.stdout.write(f"cancellation asked for {facts['cancel_requested_at']}")
        for line in view.details:
            self.stdout.write(line)
        for letter in DeadLetter.objects.filter(public_id=view.key).order_by("pk") if view.run_id is None else ():
            ended = f", settled {iso(letter.resolved_at)}" if letter.resolved_at else ""
            self.stdout.write(f"dead letter {letter.pk}{ended}: {letter.reason} (manage.py dead_letters show {letter.pk})")

    def say_family(self, relatives: family.Family) -> None:
        """Print the order's parent, and its children: how many are in which state, and the first of them."""
        if relatives.parent is not None:
            self.stdout.write(f"child of {relatives.parent.key}, step {relatives.parent.step}")
        for step, states in relatives.summary:
            self.stdout.write(f"children of {step}: {states}")
        for child in relatives.children:
            self.stdout.write(f"  {child.key} {child.state}")
        if relatives.hidden:
            self.stdout.write(f"  and {relatives.hidden} more")

    def say_steps(self, view: Entry) -> None:
        """Print one line per step, undo steps after the others."""
        self.say_table(
            ("STEP", "DIRECTION", "STATE", "EFFECT", "ATTEMPT", "GEN", "FAILURES", "COMPLETE BY", "LAST ERROR"),
            [
                (
                    step.name,
                    step.direction,
                    step.process_state,
                    step.effect,
                    step.attempt,
                    step.generation,
                    step.failure_count,
                    iso(step.complete_by),
                    step.last_error,
                )
                for step in view.steps
            ],
        )

    def say_history(self, history: list[Any]) -> None:
        """Print one line per event, the oldest first."""
        self.say_table(
            ("SEQ", "AT", "STEP", "ATTEMPT", "FROM -> TO", "ACTOR", "WHY"),
            [
                (
                    {"stray": "late", "pause": ""}.get(entry.kind, entry.seq),
                    iso(entry.at),
                    f"{entry.step} ({entry.direction})" if entry.step else "order",
                    entry.attempt,
                    entry.to_state if entry.kind == "pause" else f"{entry.from_state or '-'} -> {entry.to_state}",
                    entry.actor,
                    entry.why or "",
                )
                for entry in history
            ],
        )


def entry_facts(entry: Any) -> dict[str, Any]:
    """One event in the API's form."""
    return {
        "kind": entry.kind,
        "seq": entry.seq,
        "at": iso(entry.at),
        "step": entry.step,
        "direction": entry.direction,
        "attempt": entry.attempt,
        "from": entry.from_state,
        "to": entry.to_state,
        "actor": entry.actor,
        "why": entry.why,
    }
