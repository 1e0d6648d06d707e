"""Make the lines of an order smaller, or remove some."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError, CommandParser

from orders.edits import changing
from orders.edits.lines import flat
from orders.services import Conflict, InvalidOrder
from supervision.errors import AwaitsApproval
from supervision.management.acting import OrderCommand, actor, find_order
from supervision.management.planned import add_plan_version


class Command(OrderCommand):
    """Does what the console's page and the API do."""

    moves_orders = True
    help = (
        "Change the lines of an order that is not charged yet: fewer pieces of a product, or 0 to remove the line. Total, stock and "
        "payment follow. --dry-run only says what would change."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("id", metavar="ID", help="as `orders` lists it")
        parser.add_argument("lines", nargs="+", metavar="SKU=PIECES", help="such as MUG-BLUE=1; lines that are not named stay as they are")
        parser.add_argument("--reason", metavar="TEXT", help="why; kept in the order's history")
        parser.add_argument("--dry-run", action="store_true", help="only say what would change")
        parser.add_argument("--by", metavar="USER", help="the account that acts (default: the shell's user)")
        add_plan_version(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        key, lines = find_order(options["id"]).key, [_line(text) for text in options["lines"]]
        try:
            if options["dry_run"]:
                change, version = changing.preview(key, lines)
                words = f"{change}; nothing was done\nversion of the plan: {version}"
            else:
                by, reason = actor(options)
                words = str(changing.change_lines(key, lines=lines, reason=reason, by=by, plan_version=options["plan_version"]))
        except AwaitsApproval as waits:
            words = str(waits)
        except InvalidOrder as wrong:
            raise CommandError(" ".join(flat(wrong.errors))) from None
        except Conflict as refusal:
            raise CommandError(f"refused: {refusal.message}") from None
        self.stdout.write(f"{options['id']}: {words}")


def _line(text: str) -> dict[str, Any]:
    sku, _equals, pieces = text.rpartition("=")
    if not sku or not pieces.isdecimal():
        raise CommandError(f"SKU=PIECES: expected such as MUG-BLUE=1, not {text!r}")
    return {"sku": sku, "quantity": int(pieces)}
