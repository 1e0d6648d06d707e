"""Show the database's epochs, or declare that a new one begins."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError, CommandParser

from supervision.management.base import Command as Base
from supervision.models import Epoch
from supervision.runtime.humanize import utc
from supervision.store import epochs

EPILOG = """
A promotion of a standby and a restore into another cluster or database are detected. Declare an epoch after a restore that
detection cannot see, such as data put back into the tables as they are, before the workers start again: every order that
is under way then looks at the services before it acts, and no number that was given out before is given out again.
"""


class Command(Base):
    """List the epochs, newest first, or begin a new one."""

    help = "Show the database's epochs; with --begin: declare that it was put back to an earlier state, so that a new one begins."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.epilog = EPILOG
        parser.add_argument("--begin", action="store_true", help="begin a new epoch now; needs --reason")
        parser.add_argument("--reason", default="", help="why, for the record")
        parser.add_argument("--json", action="store_true", help="print one JSON document")

    def handle(self, *_: Any, begin: bool, reason: str, json: bool, **options: Any) -> None:
        if begin and not reason.strip():
            raise CommandError("--begin needs --reason: say what was done to the database")
        if reason and not begin:
            raise CommandError("--reason goes with --begin")
        if begin:
            epochs.begin(reason.strip(), declared=True)
        else:
            epochs.look()
        rows: list[dict[str, Any]] = [
            {
                "number": one.number,
                "system_identifier": one.system_identifier,
                "timeline": one.timeline,
                "began_at": one.began_at,
                "first_run_id": one.first_run_id,
                "reason": one.reason,
                "by": one.by,
            }
            for one in Epoch.objects.order_by("-number")
        ]
        if json:
            self.say_json(rows)
            return
        for row in rows:
            since = utc(row["began_at"])
            self.stdout.write(f"epoch {row['number']} since {since}, timeline {row['timeline']}, by {row['by']}: {row['reason']}")
