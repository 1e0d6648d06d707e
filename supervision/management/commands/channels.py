"""The channels that tell operators of incidents: list, test, and what was sent."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError, CommandParser

from supervision.management.base import Command as Base
from supervision.management.base import at_least
from supervision.models import Channel, Telling
from supervision.outbox import channels


class Command(Base):
    """List the channels, send a test, or show the log."""

    help = (
        "List the channels that tell operators of incidents, beside mails to OPERATOR_EMAILS; operators edit them in the console. "
        "`test NAME` sends a test and says the answer; exit code 1 if it was not taken. `log [NAME]` shows what was sent."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("action", nargs="?", default="list", choices=["list", "test", "log"], help="what to do (default list)")
        parser.add_argument("name", nargs="?", metavar="NAME", help="a channel's name")
        parser.add_argument("--limit", type=at_least(1), default=50, metavar="N", help="most rows of the log (default 50)")
        parser.add_argument("--json", action="store_true", help="JSON instead of text")

    def handle(self, *args: Any, **options: Any) -> None:
        found = Channel.objects.order_by("name")
        if options["name"]:
            found = found.filter(name=options["name"])
            if not found:
                raise CommandError(f"no channel named {options['name']!r}")
        if options["action"] == "list":
            self.show([facts(channel) for channel in found], options, "no channels")
        elif options["action"] == "log":
            rows = Telling.objects.filter(channel__in=found).select_related("channel").order_by("-pk")[: options["limit"]]
            self.show([entry(row) for row in rows], options, "nothing was sent")
        else:
            self.test(found, options)

    def test(self, found: Any, options: dict[str, Any]) -> None:
        """Send a test to one channel."""
        if not options["name"]:
            raise CommandError("test needs the NAME of a channel")
        row = channels.send_test(found[0]) if found[0].active else None
        if row is None or row.delivered_at is None:
            raise CommandError(f"{options['name']}: {row.last_error if row else 'it is switched off'}")
        self.stdout.write(f"{options['name']}: delivered, answer {row.status_code}")

    def show(self, rows: list[dict[str, Any]], options: dict[str, Any], none: str) -> None:
        """These rows as JSON or as a table."""
        if options["json"]:
            self.say_json(rows)
        elif rows:
            self.say_table([name.upper().replace("_", " ") for name in rows[0]], [list(row.values()) for row in rows])
        else:
            self.stdout.write(none)


def facts(channel: Channel) -> dict[str, Any]:
    """One channel, without its secret."""
    return {
        "name": channel.name,
        "kind": channel.kind,
        "severity": channel.least,
        "kinds": ", ".join(channel.kinds) or "all",
        "active": channel.active,
        "failing_since": channel.failing_since,
        "sent_at": channel.sent_at,
        "last_error": channel.last_error or None,
    }


def entry(row: Telling) -> dict[str, Any]:
    """One message and its last try."""
    state = "delivered" if row.delivered_at else "given up" if row.given_up_at else "waiting"
    return {
        "at": row.created_at,
        "channel": row.channel.name,
        "event": row.event,
        "incident": row.incident_id,
        "state": state,
        "tries": row.attempt,
        "answer": row.status_code,
        "error": row.last_error or None,
    }
