"""List the versions of workflows, and whether the code may drop them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandParser

from supervision.management.base import Command as Base
from supervision.plans import registry, versions
from supervision.plans.versions import Version


class Command(Base):
    """One row for each version that is registered or known to this code."""

    help = (
        "List the versions of every workflow: the fingerprint of each definition and when it was first seen, how many of its "
        "orders are unfinished (in flight) and how many of those no process is working on (waiting), and whether this code may "
        "drop it: no new orders run it, it has no unfinished orders, and no other order may need it, because an order above it "
        "may undo it or a hook is called later. A version that this code defines otherwise than the database is named; such "
        "code does not start."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="one JSON array")

    def handle(self, *args: Any, **options: Any) -> None:
        rows = versions.versions()
        if options["json"]:
            self.say_json([asdict(row) for row in rows])
        else:
            self.say_table(
                ("WORKFLOW", "VERSION", "FINGERPRINT", "REGISTERED", "IN FLIGHT", "WAITING", "MAY GO"),
                [
                    (
                        row.name,
                        row.version,
                        row.fingerprint,
                        row.registered,
                        row.in_flight,
                        row.waiting,
                        _verdict(row),
                    )
                    for row in rows
                ],
            )
        for what in registry.differences():
            self.stderr.write(f"this code does not start: {what}")


def _verdict(row: Version) -> str:
    if not row.known:
        who = f" and unknown to {', '.join(row.unknown_to)}" if row.in_flight and row.unknown_to else ""
        return f"not in this code{who}"
    if row.newest:
        return "no: new orders run it"
    if row.by_choice:
        return "no: new orders may choose it"
    if row.in_flight:
        return f"no: {row.in_flight} orders are unfinished"
    return f"no: {row.needed} other orders may need it" if row.needed else "yes"
