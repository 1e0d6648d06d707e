"""List orders."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from supervision.insight import directory
from supervision.insight.filters import BadFilter
from supervision.management.base import Command as Base
from supervision.management.base import at_least
from supervision.management.filtering import add_filters, given_filters, in_one_line
from supervision.models import Submission


class Command(Base):
    """Lists the newest orders first, optionally only those that fit filters."""

    help = (
        "List orders, the newest first, with the step that failed where one did. Orders whose submission is not consumed "
        "yet are counted below the table; `order ID` shows them too."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        add_filters(parser)
        parser.add_argument("--limit", type=at_least(1), default=100, metavar="N", help="most orders shown (default 100)")
        parser.add_argument("--json", action="store_true", help="a JSON list instead of a table")

    def handle(self, *args: Any, **options: Any) -> None:
        shown, given = directory.current(), given_filters(options)
        try:
            rows = shown.newest(given, options["limit"] + 1)
        except BadFilter as bad:
            raise in_one_line(bad) from bad
        more, rows = len(rows) > options["limit"], rows[: options["limit"]]
        if options["json"]:
            self.say_json(rows)
            return
        failures = [row["failed_step"] and f"{row['failed_step']}: {row['last_error'] or '?'}" for row in rows]
        cells = [(*shown.cells(row), failure) for row, failure in zip(rows, failures, strict=True)]
        if cells:
            self.say_table((*shown.columns, "FAILED STEP"), cells)
        else:
            self.stdout.write("no order fits" if given else "no orders")
        if more:
            self.stdout.write(f"... and more: --limit {options['limit'] * 10}")
        waiting = Submission.objects.filter(consumed_at__isnull=True).count()
        if waiting:
            self.stdout.write(f"{waiting} more are accepted and wait to be consumed")
