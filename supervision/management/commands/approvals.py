"""Verbs that wait for another operator: list, approve, refuse."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError, CommandParser

from supervision.approvals import deciding, waiting
from supervision.management.acting import find_user, shell_user
from supervision.management.base import Command as Base
from supervision.management.base import at_least
from supervision.models import Approval


class Command(Base):
    """List the requests, or decide about one."""

    help = (
        "List the verbs that wait until another operator approves them, because they move or forgo more money than APPROVAL_ABOVE. "
        "`approve ID --by USER --reason TEXT` carries the verb out, `refuse` does not. USER is an operator other than the one who asked."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("action", nargs="?", default="list", choices=["list", "approve", "refuse"], help="what to do (default list)")
        parser.add_argument("ids", nargs="*", type=at_least(1), metavar="ID", help="the numbers of requests")
        parser.add_argument("--by", metavar="USER", help="the account that decides; required to approve and to refuse")
        parser.add_argument("--reason", metavar="TEXT", help="why; required to approve and to refuse")
        parser.add_argument("--all", action="store_true", help="list the decided ones too")
        parser.add_argument("--limit", type=at_least(1), default=100, metavar="N", help="most rows of the list (default 100)")
        parser.add_argument("--json", action="store_true", help="JSON instead of text")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["action"] == "list":
            self.list(options)
            return
        if not (options["ids"] and options["by"] and (options["reason"] or "").strip()):
            raise CommandError(f"{options['action']} needs the numbers of requests, --by USER and --reason TEXT")
        by = find_user(options["by"])
        if not by.has_perm("supervision.operate"):  # type: ignore[attr-defined]
            raise CommandError(f"{options['by']} is no operator")
        decide = deciding.approve if options["action"] == "approve" else deciding.refuse
        for number in options["ids"]:
            row = decide(number, by=by, reason=options["reason"].strip(), also=f"command ({shell_user()})")
            if options["json"]:
                self.say_json(waiting.facts(row))
            else:
                self.stdout.write(f"{number}: {row.state}")

    def list(self, options: dict[str, Any]) -> None:
        """Print the requests, the newest first."""
        found = Approval.objects.order_by("-pk")
        if not options["all"]:
            found = found.filter(state=Approval.State.PENDING)
        rows = [waiting.facts(row) for row in found[: options["limit"]]]
        if options["json"]:
            self.say_json(rows)
        elif rows:
            names = ("id", "state", "verb", "step", "order", "asked_by", "expires_at", "decided_by", "reason")
            table = [[row[name] for name in names[:5]] + [_amounts(row)] + [row[name] for name in names[5:]] for row in rows]
            self.say_table(("ID", "STATE", "VERB", "STEP", "ORDER", "AT STAKE", "ASKED BY", "EXPIRES", "DECIDED BY", "REASON"), table)
        else:
            self.stdout.write("no requests" if options["all"] else "no request waits")


def _amounts(row: dict[str, Any]) -> str:
    return ", ".join(f"{one['amount']} {one['currency']}" for one in row["stake"])
