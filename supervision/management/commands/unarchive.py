"""Bring archived orders back for what is still to be done about them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, date, datetime, time
from typing import Any

from django.core.management.base import CommandError, CommandParser

from supervision.management.acting import OrderCommand, actor, find_order
from supervision.management.base import at_least
from supervision.operations.ending import unarchiving


class Command(OrderCommand):
    """Bring archived orders back in batches, each in a transaction of its own."""

    help = (
        "Make the shop's rows of archived orders anew, from what the archive holds of them: the order with its lines, parcels, returns, "
        "refunds, mails and adjustments. After that the order is in lists again, and goods can be returned and money given back as before "
        "`archive` took the rows. The run, its steps and its history stay in the archive, where they can be read. Orders that have their "
        "rows are left as they are: the command may be stopped and repeated."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("orders", nargs="*", metavar="ID", help="orders, by public id or number")
        parser.add_argument("--ended-from", type=day, metavar="DATE", help="instead of ids: all that ended on this day (UTC) or later")
        parser.add_argument("--ended-to", type=day, metavar="DATE", help="... and before this day")
        parser.add_argument("--reason", default="", metavar="TEXT", help="why; kept in the operators' log for each order")
        parser.add_argument("--by", metavar="USER", help="the account that acts, for the operators' log (default: the shell's user)")
        parser.add_argument("--batch", type=at_least(1), default=200, metavar="N", help="orders per transaction (default 200)")
        parser.add_argument("--dry-run", action="store_true", help="say how many there are and change nothing")
        parser.add_argument("--json", action="store_true", help="one JSON object instead of a sentence")

    def handle(self, *args: Any, **options: Any) -> None:
        since, until = options["ended_from"], options["ended_to"]
        if bool(options["orders"]) == bool(since or until):
            raise CommandError("give orders, or --ended-from and --ended-to")
        if not options["orders"] and not (since and until and since < until):
            raise CommandError("give both --ended-from and a later --ended-to")
        by, reason = ("", "") if options["dry_run"] else actor(options)
        total, asked = unarchiving.Back(), 0
        with self.progress(None, "orders") as progress:
            for keys in self._keys(options["orders"], since, until):
                asked += len(keys)
                for back in unarchiving.bring_back(keys, by=by, reason=reason, size=options["batch"], dry_run=options["dry_run"]):
                    total.brought, total.left = total.brought + back.brought, total.left + back.left
                    progress.advance(back.brought + back.left)
        live = asked - total.brought - total.left
        if options["json"]:
            self.say_json({**asdict(total), "not_archived": live, "dry_run": options["dry_run"]})
            return
        self.stdout.write(f"{total.brought} orders {'would be' if options['dry_run'] else 'are'} back")
        if total.left:
            self.stdout.write(f"{total.left} left as they are: they have their rows, or are no orders of the shop")
        if live:
            self.stdout.write(f"{live} not archived")

    def _keys(self, orders: list[str], since: datetime | None, until: datetime | None) -> Iterator[list[str]]:
        if since is None or until is None:
            yield list(dict.fromkeys(find_order(said).key for said in orders))
        else:
            yield from unarchiving.ended_between(since, until)


def day(text: str) -> datetime:
    """An argparse type: a day, as its first moment in UTC."""
    return datetime.combine(date.fromisoformat(text), time(), UTC)


day.__name__ = "day such as 2026-01-31"
