"""Show how much work waits per agent and how many consumers it needs, counted in the database."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandParser

from supervision.insight import autoscaling, metrics
from supervision.management.base import Command as Base
from supervision.management.base import positive_seconds


class Command(Base):
    """The figures for an autoscaler or a person."""

    help = (
        "Show for every agent how many steps wait (due, or claimed and not started), run and are overdue, how old the "
        "oldest waiting one is, and how many consumers would work it off in time without more calls than its service "
        "allows. Counted in the database: a broker's queue length lies while messages are prefetched or lost."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--format", choices=("table", "json", "prom"), default="table", help="how to print it (default: table)")
        parser.add_argument("--json", action="store_true", help="the same as --format json")
        parser.add_argument(
            "--target-seconds",
            type=positive_seconds,
            default=autoscaling.TARGET_SECONDS,
            metavar="SECONDS",
            help=f"in how many seconds the recommended consumers work the backlog off (default {autoscaling.TARGET_SECONDS:g})",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        rows = autoscaling.loads(options["target_seconds"])
        if options["json"] or options["format"] == "json":
            self.say_json([asdict(row) for row in rows])
        elif options["format"] == "prom":
            self.stdout.write(metrics.text(rows), ending="")
        else:
            self.say_table(
                ("AGENT", "WAITING", "HELD", "RUNNING", "OVERDUE", "OLDEST", "MEAN", "CONSUMERS", "RECOMMENDED"),
                [
                    (
                        row.agent,
                        row.waiting,
                        row.held,
                        row.running,
                        row.overdue,
                        f"{row.oldest_seconds:.0f} s",
                        f"{row.mean_seconds:.2f} s",
                        row.consumers,
                        row.recommended_consumers,
                    )
                    for row in rows
                ],
            )
