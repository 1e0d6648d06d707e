"""Show the incidents, and acknowledge them."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.db.models import F

from supervision.incidents import lifecycle
from supervision.management.acting import find_user
from supervision.management.base import Command as Base
from supervision.management.base import at_least
from supervision.models import Incident
from supervision.operations import operator_verbs
from supervision.outbox.incident_mail import amounts, link


class Command(Base):
    """List the incidents, or acknowledge some."""

    help = (
        "List the open incidents, the newest first: one row per cause that holds up orders or needs an operator. "
        "`--acknowledge ID... --reason TEXT` says that a person takes care of them; they stay open until their cause is gone."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--all", action="store_true", help="list the closed ones too")
        parser.add_argument("--acknowledge", nargs="+", type=at_least(1), metavar="ID", help="acknowledge these, with --reason")
        parser.add_argument("--reason", help="why; required to acknowledge, and kept")
        parser.add_argument("--by", metavar="USER", help="the account that acknowledges (default: the command itself)")
        parser.add_argument("--limit", type=at_least(1), default=100, metavar="N", help="most rows of the list (default 100)")
        parser.add_argument("--json", action="store_true", help="a JSON list instead of a table")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["acknowledge"]:
            if not (options["reason"] or "").strip():
                raise CommandError("acknowledging needs --reason TEXT")
            by: Any = find_user(options["by"]) if options["by"] else "command"
            for pk in options["acknowledge"]:
                operator_verbs.acknowledge_incident(pk, by=by, reason=options["reason"])
                self.stdout.write(f"incident {pk} is acknowledged")
            return
        listed = Incident.objects.order_by(F("closed_at").desc(nulls_first=True), "-opened_at", "-pk")
        if not options["all"]:
            listed = listed.filter(closed_at__isnull=True)
        rows = list(listed[: options["limit"]])
        if options["json"]:
            self.say_json([facts(row) for row in rows])
            return
        if not rows:
            self.stdout.write("no incidents" if options["all"] else "no open incidents")
            return
        self.say_table(
            ("ID", "SEVERITY", "KIND", "SINCE", "CLOSED", "ORDERS", "HELD", "ACKNOWLEDGED", "TITLE"),
            [
                (
                    row.pk,
                    row.severity,
                    row.kind,
                    row.opened_at,
                    row.closed_at,
                    row.orders,
                    amounts(worth(row)) or None,
                    row.acknowledged_by or None,
                    row.title,
                )
                for row in rows
            ],
        )


def worth(row: Incident) -> list[Any]:
    """What the orders that an open incident holds are worth, by currency."""
    return [] if row.closed_at is not None else lifecycle.held(lifecycle.runs_of(row.kind, row.cause))


def facts(row: Incident) -> dict[str, Any]:
    """One incident; keys and their order are stable."""
    return {
        "id": row.pk,
        "kind": row.kind,
        "cause": row.cause,
        "title": row.title,
        "resource": row.resource,
        "step": row.step,
        "code": row.code,
        "severity": row.severity,
        "orders": row.orders,
        "held": [{"amount": str(amount), "currency": currency} for currency, amount in worth(row)],
        "opened_at": row.opened_at,
        "closed_at": row.closed_at,
        "acknowledged_at": row.acknowledged_at,
        "acknowledged_by": row.acknowledged_by or None,
        "notified_at": row.notified_at,
        "link": link(row.pk),
    }
