"""Give a part of an order's money back."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Any

from django.core.management.base import CommandError, CommandParser

from orders.refunds import asking
from orders.services import Conflict, InvalidOrder, OrderRefused
from supervision.errors import AwaitsApproval
from supervision.management.acting import OrderCommand, actor, find_order


class Command(OrderCommand):
    """Asks for a refund, as the console's page and the API do."""

    moves_orders = True
    help = (
        "Give a part of what was paid for a finished order back, never more than is left of it. The same --key pays once, however often "
        "the command runs. Money that came by bank transfer waits until its payout is recorded (`signal ID --name money-returned`)."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("id", metavar="ID", help="as `orders` lists it")
        parser.add_argument("amount", metavar="AMOUNT", help="in the order's currency, such as 10.00")
        parser.add_argument("--reason", required=True, metavar="TEXT", help="why; kept with the refund")
        parser.add_argument("--key", required=True, metavar="KEY", help="a name of this refund, such as a ticket's number")
        parser.add_argument("--by", metavar="USER", help="the account that acts (default: the shell's user)")
        parser.add_argument("--json", action="store_true", help="one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        by, reason = actor(options)
        key = find_order(options["id"]).key
        try:
            amount = Decimal(options["amount"])
        except InvalidOperation:
            raise CommandError(f"AMOUNT: expected an amount such as 10.00, not {options['amount']!r}") from None
        try:
            made = asking.refund(key, amount=amount, reason=reason, by=by, idempotency_key=options["key"])
        except AwaitsApproval as waits:
            facts, words = {"approval": waits.approval, "state": "pending"}, str(waits)
        except InvalidOrder as wrong:
            raise CommandError("; ".join(f"{name}: {' '.join(map(str, said))}" for name, said in wrong.errors.items())) from None
        except Conflict as full:
            raise CommandError(f"refused: {full.message}") from None
        except OrderRefused as refusal:
            raise CommandError(f"refused: {refusal}") from None
        else:
            facts = {"id": made.public_id, "replayed": made.replayed}
            words = "this refund was asked for before" if made.replayed else f"{amount} go back, as {made.public_id}"
        if options["json"]:
            self.say_json(facts)
        else:
            self.stdout.write(f"{options['id']}: {words}")
