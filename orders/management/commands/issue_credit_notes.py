"""Issue the credit notes that are missing."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from orders.documents.missing import missing, queue
from supervision.management.base import Command as Base


class Command(Base):
    """Queues credit notes; the outbox issues each once, however often this runs."""

    help = (
        "Issue the credit notes of returns and refunds that ended before the shop issued any, under the next numbers and today's date. "
        "Those that have one get no other one."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--plan", action="store_true", help="list them, and issue none")

    def handle(self, *args: Any, **options: Any) -> None:
        count = 0
        for some in missing():
            if not options["plan"]:
                queue(some)
            for one in some:
                self.stdout.write(f"{one.number}: {one.amount} {one.currency} ({one.what} {one.key} of order {one.order})")
            count += len(some)
        done = "are missing" if options["plan"] else "are queued: the outbox issues them"
        self.stdout.write(f"{count} credit notes {done}" if count else "no credit note is missing")
