"""List orders."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from orders import queries
from supervision.insight import queries as engine
from supervision.management.base import Command as Base
from supervision.management.base import at_least
from supervision.models import Submission
from supervision.states import ProcessState, RunState


class Command(Base):
    """Lists the newest orders first, optionally only those in one state."""

    help = (
        "List orders, the newest first, with the step that failed where one did. Orders whose submission is not consumed "
        "yet are counted below the table; `order ID` shows them too."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--state", choices=[str(state) for state in RunState], help="only orders in this state")
        parser.add_argument("--limit", type=at_least(1), default=100, metavar="N", help="most orders shown (default 100)")
        parser.add_argument("--json", action="store_true", help="a JSON list instead of a table")

    def handle(self, *args: Any, **options: Any) -> None:
        listed = queries.all_orders()
        if options["state"]:
            listed = queries.in_state(listed, options["state"])
        orders = queries.with_runs(listed[: options["limit"] + 1])
        more, orders = len(orders) > options["limit"], orders[: options["limit"]]
        steps = engine.steps_of([order.run_id for order in orders])
        rows = [facts(order, steps.get(order.run_id, [])) for order in orders]
        if options["json"]:
            self.say_json(rows)
            return
        self.say_table(
            ("ID", "NUMBER", "STATE", "CREATED", "TOTAL", "E-MAIL", "FAILED STEP"),
            [
                (
                    row["id"],
                    row["number"],
                    row["process_state"],
                    f"{order.created_at:%Y-%m-%d %H:%M:%S}",
                    f"{row['total']} {row['currency']}",
                    row["email"],
                    row["failed_step"] and f"{row['failed_step']}: {row['last_error'] or '?'}",
                )
                for order, row in zip(orders, rows, strict=True)
            ],
        )
        if more:
            self.stdout.write(f"... and more: --limit {options['limit'] * 10}")
        waiting = Submission.objects.filter(consumed_at__isnull=True).count()
        if waiting:
            self.stdout.write(f"{waiting} more are accepted and wait to be consumed")


def facts(order: Any, steps: list[Any]) -> dict[str, Any]:
    """One order of the list; keys and their order are stable."""
    failed = next((step for step in reversed(steps) if step.process_state == ProcessState.ERROR), None)
    return {
        "id": order.public_id,
        "number": order.number,
        "process_state": order.run.process_state,
        "direction": order.run.direction,
        "email": order.email,
        "total": order.total,
        "currency": order.currency,
        "created_at": order.created_at,
        "finished_at": order.run.finished_at,
        "failed_step": failed and failed.name,
        "attempt": failed and failed.attempt,
        "last_error": failed and failed.last_error,
    }
