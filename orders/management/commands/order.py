"""Show one order with its steps and its history."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from orders import queries
from orders.management.base import OrderCommand, find_order
from supervision.insight import queries as engine


class Command(OrderCommand):
    """Prints the order's facts, its steps and its history."""

    help = (
        "Show one order, by its public id or its number: what was ordered, every step with its attempts and deadlines, and "
        "its history, late answers included. --json prints the API's order answer with `events` beside it."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("id", metavar="ID", help="public id or number")
        parser.add_argument("--json", action="store_true", help="one JSON object instead of text")

    def handle(self, *args: Any, **options: Any) -> None:
        view = find_order(options["id"])
        history = engine.timeline(view.run_id) if view.run_id else []
        if options["json"]:
            self.say_json(queries.answer(view) | {"events": [entry_facts(entry) for entry in history]})
            return
        self.say_order(view)
        if view.steps:
            self.stdout.write("")
            self.say_steps(view)
        if history:
            self.stdout.write("")
            self.say_history(history)

    def say_order(self, view: queries.OrderView) -> None:
        """Print the order's own facts."""
        self.stdout.write(f"order {view.public_id}  number {view.number or '(not consumed yet)'}")
        because = f" ({view.waiting_because})" if view.waiting_because else ""
        self.stdout.write(f"state {view.process_state}, direction {view.direction}{because}")
        self.stdout.write(f"placed {queries.iso(view.created_at)}, finished {queries.iso(view.finished_at) or '-'}")
        if view.cancel_requested_at:
            self.stdout.write(f"cancellation asked for {queries.iso(view.cancel_requested_at)}")
        self.stdout.write(f"{view.email}, {view.total} {view.currency}, {view.payment_method}")
        for line in view.lines:
            self.stdout.write(f"  {line.quantity} x {line.sku}  {line.name}  {line.unit_price} each")

    def say_steps(self, view: queries.OrderView) -> None:
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
                    queries.iso(step.complete_by),
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
                    queries.iso(entry.at),
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
        "at": queries.iso(entry.at),
        "step": entry.step,
        "direction": entry.direction,
        "attempt": entry.attempt,
        "from": entry.from_state,
        "to": entry.to_state,
        "actor": entry.actor,
        "why": entry.why,
    }
