"""Move finished orders out of the hot tables."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from typing import Any

from django.core.management.base import CommandParser

from supervision.management.base import Command as Base
from supervision.management.base import at_least
from supervision.operations import archive


class Command(Base):
    """Archive orders in batches, each in a transaction of its own."""

    help = (
        "Move orders that ended long ago (Processed, Cancelled) out of the hot tables, with their steps, history, "
        "acknowledged alerts and consumed submissions, into one compact row each; and delete notifications and "
        "deliveries that were delivered that long ago. An archived order is still shown by `order ID`, the API and the "
        "console. What is in Error, or has an open alert or an undelivered message, is left alone. Safe beside running "
        "workers and beside another archive; stopped at any moment it is simply started again."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--older-than", type=days, default=30.0, metavar="DAYS", help="only what ended longer ago (default 30)")
        parser.add_argument("--batch", type=at_least(1), default=500, metavar="N", help="orders per transaction (default 500)")
        parser.add_argument("--dry-run", action="store_true", help="say how many there are and change nothing")
        parser.add_argument("--keep-orders", action="store_true", help="the shop's orders and lines stay in their tables, and in its lists")
        parser.add_argument("--json", action="store_true", help="one JSON object instead of a sentence")

    def handle(self, *args: Any, **options: Any) -> None:
        older_than = timedelta(days=options["older_than"])
        total = archive.Moved()
        with self.progress(archive.count(older_than), "orders") as progress:
            for moved in archive.batches(older_than, size=options["batch"], keep_orders=options["keep_orders"], dry_run=options["dry_run"]):
                total.add(moved)
                progress.advance(moved.runs)
        if options["json"]:
            self.say_json({**asdict(total), "dry_run": options["dry_run"]})
            return
        verb = "would be archived" if options["dry_run"] else "archived"
        rows = "" if options["dry_run"] else f" with {total.steps} steps and {total.events} events"
        self.stdout.write(f"{total.runs} orders {verb}{rows} in {progress.seconds:.1f} s")
        gone = {"submissions": total.submissions, "notifications": total.notifications, "deliveries": total.deliveries}
        self.stdout.write(", ".join(f"{n} {name}" for name, n in gone.items()) + (" would go" if options["dry_run"] else " gone"))
        if total.held:
            self.stdout.write(f"{total.held} left where they are: an open alert, or a message not delivered yet")


def days(text: str) -> float:
    """An argparse type: days, 0 or more."""
    value = float(text)
    if not 0 <= value < 100_000:
        raise ValueError
    return value


days.__name__ = "number of days"
