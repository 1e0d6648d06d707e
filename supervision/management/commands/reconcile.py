"""Compare our books with what the services hold, and settle the differences."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.core.management.base import CommandError, CommandParser

from supervision.errors import AwaitsApproval, Refused
from supervision.ledger import reconciliation
from supervision.ledger.reconciliation import CannotCompare, CannotSettle
from supervision.management.acting import find_user, shell_user
from supervision.management.base import Command as Base
from supervision.management.base import at_least
from supervision.models import Finding

COLUMNS = ("ID", "SERVICE", "KIND", "ORDER", "EXTERNAL ID", "AMOUNT", "VERBS", "DETAIL")


class Command(Base):
    """Compare and list, or settle."""

    help = (
        "Compare our books with what the services hold (charges, refunds, disputes, shipments) and list every difference. "
        "Exit code 0: there is none. 1: there are some. 2: a service could not be compared. "
        "--settle VERB settles the findings given, or without ids every open one that the verb fits. adopt: our books take "
        "over what the service holds, and nothing is changed there. refund: the money is given back. cancel: the shipment "
        "is deleted, or the payment closed. Each finding lists what fits it. Asked again, a verb does nothing more."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("findings", nargs="*", type=at_least(1), metavar="FINDING", help="ids, with --settle")
        parser.add_argument("--service", choices=reconciliation.services(), help="only this service")
        parser.add_argument("--since", type=moment, metavar="ISO", help="compare what is dated later (default: a few days, see docs)")
        parser.add_argument("--open", action="store_true", help="list what is open without asking the services")
        parser.add_argument("--settle", choices=reconciliation.VERBS, metavar="VERB", help="adopt, refund or cancel")
        parser.add_argument("--reason", metavar="TEXT", help="why; required by --settle, and kept")
        parser.add_argument("--by", metavar="USER", help="the account that settles (default: the shell's user)")
        parser.add_argument("--json", action="store_true", help="a JSON list instead of a table")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["settle"]:
            self.settle(options)
            return
        if options["findings"]:
            raise CommandError("ids are for --settle VERB")
        services = [options["service"]] if options["service"] else reconciliation.services()
        failed = [] if options["open"] else self.compare(services, options["since"])
        rows = [row for row in reconciliation.findings(options["service"]) if row.service in services]
        if options["json"]:
            self.say_json([facts(row) for row in rows])
        elif rows:
            self.say_table(COLUMNS, [line(row) for row in rows])
        elif not failed:
            self.stdout.write("no findings: our books agree with the services")
        if failed:
            raise CommandError("; ".join(failed), returncode=2)
        if rows:
            raise SystemExit(1)

    def compare(self, services: list[str], since: datetime | None) -> list[str]:
        """Compare each service. Returns a message for each service that could not be compared."""
        failed = []
        for service in services:
            try:
                reconciliation.compare(service, since)
            except (CannotCompare, Refused) as problem:
                failed.append(f"{service}: {problem}")
        return failed

    def settle(self, options: dict[str, Any]) -> None:
        """Settle each finding. A finding that cannot be settled does not stop the others."""
        verb, reason = options["settle"], (options["reason"] or "").strip()
        if not reason:
            raise CommandError("--settle needs --reason TEXT")
        by: Any = find_user(options["by"]) if options["by"] else f"command ({shell_user()})"
        numbers = options["findings"] or [row.pk for row in reconciliation.findings(options["service"]) if verb in row.verbs]
        failed, told = 0, []
        for number in numbers:
            try:
                said = reconciliation.settle(number, verb, by=by, reason=reason)
            except AwaitsApproval as waits:
                told.append({"id": number, "settled": False, "approval": waits.approval, "state": "pending"})
                if not options["json"]:
                    self.stdout.write(f"{number}: {waits}")
            except (Refused, CannotSettle, CannotCompare) as problem:
                failed += 1
                told.append({"id": number, "settled": False, "error": str(problem)})
                if not options["json"]:
                    self.stderr.write(f"{number}: {problem}")
            else:
                told.append({"id": number, "settled": True, "outcome": said})
                if not options["json"]:
                    self.stdout.write(f"{number}: {said}")
        if options["json"]:
            self.say_json(told)
        elif not numbers:
            self.stdout.write(f"no open finding that {verb} fits")
        if failed:
            raise CommandError(f"{failed} of {len(numbers)} not settled")


def facts(row: Finding) -> dict[str, Any]:
    """One finding for a script; keys and their order are stable."""
    return {
        "id": row.pk,
        "service": row.service,
        "kind": row.kind,
        "order": row.order_key or None,
        "external_id": row.external_id or None,
        "amount": amount(row),
        "currency": row.currency or None,
        "verbs": row.verbs,
        "detail": row.detail,
        "found_at": row.found_at,
        "last_error": row.last_error or None,
    }


def line(row: Finding) -> tuple[Any, ...]:
    """One finding for a person."""
    money = amount(row) and f"{amount(row)} {row.currency}"
    detail = f"{row.detail}; last try: {row.last_error}" if row.last_error else row.detail
    return row.pk, row.service, row.kind, row.order_key or None, row.external_id or None, money, ", ".join(row.verbs) or None, detail


def amount(row: Finding) -> str | None:
    """The amount as a decimal string: two decimals, or three where the currency has them."""
    if row.amount is None:
        return None
    text = f"{row.amount:.3f}"
    return text.removesuffix("0")


def moment(text: str) -> datetime:
    """An argparse type: an ISO 8601 time, UTC where it names no zone."""
    value = datetime.fromisoformat(text)
    return value if value.tzinfo else value.replace(tzinfo=UTC)


moment.__name__ = "ISO 8601 time"
