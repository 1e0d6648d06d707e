"""Correct the warehouse's report on a return."""

from __future__ import annotations

import re
from typing import Any

from django.core.management.base import CommandError, CommandParser

from orders.api.corrections import plan_facts
from orders.returns import correcting, goods
from orders.services import InvalidOrder, OrderRefused
from supervision.errors import AwaitsApproval, SupervisionError
from supervision.management.acting import OrderCommand, actor

LINE = re.compile(r"(?P<sku>[^=@\s]+)(@(?P<price>[0-9.]+))?=(?P<accepted>[0-9]{1,6})(,(?P<refused>[0-9]{1,6}))?")


class Command(OrderCommand):
    """Shows what a correction would do, or does it, as the console's page and the API do."""

    moves_orders = True
    help = (
        "Correct the warehouse's report on a return: say what really came, whole. Products without --line did not come. With --plan "
        "nothing is changed. The same --key corrects once, however often the command runs."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("id", metavar="ID", help="the public id of the return")
        parser.add_argument(
            "--line", action="append", default=[], metavar="SKU[@PRICE]=ACCEPTED[,REFUSED]", help="what came, such as MUG-BLUE=1,1"
        )
        parser.add_argument("--plan", action="store_true", help="only show what the correction would do")
        parser.add_argument("--reason", default="", metavar="TEXT", help="why the report was wrong")
        parser.add_argument("--key", default="", metavar="KEY", help="a name of this correction, such as a ticket's number")
        parser.add_argument("--seen", type=int, metavar="N", help="the corrections that --plan showed: refused if there are more now")
        parser.add_argument("--by", metavar="USER", help="the account that acts (default: the shell's user)")
        parser.add_argument("--json", action="store_true", help="one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        report = {"lines": [_line(said) for said in options["line"]]}
        try:
            facts, words = self._plan(options, report) if options["plan"] else self._correct(options, report)
        except goods.Unreadable as problem:
            raise CommandError(f"{problem.field}: {problem.problem}") from None
        except InvalidOrder as wrong:
            raise CommandError("; ".join(f"{name}: {' '.join(map(str, said))}" for name, said in wrong.errors.items())) from None
        except (OrderRefused, SupervisionError) as refusal:
            raise CommandError(f"refused: {refusal}") from None
        if options["json"]:
            self.say_json(facts)
        else:
            self.stdout.write(f"{options['id']}: {words}")

    def _plan(self, options: dict[str, Any], report: dict[str, Any]) -> tuple[dict[str, Any], str]:
        found = correcting.plan(options["id"], report)
        return plan_facts(found), f"{found.in_words()} (corrections so far: {found.version})"

    def _correct(self, options: dict[str, Any], report: dict[str, Any]) -> tuple[dict[str, Any], str]:
        if not options["key"] or not options["reason"]:
            raise CommandError("a correction needs --key and --reason")
        by, reason = actor(options)
        try:
            made = correcting.correct(
                options["id"], report, reason=reason, by=by, idempotency_key=options["key"], version=options["seen"]
            )  # fmt: skip
        except AwaitsApproval as waits:
            return {"approval": waits.approval, "state": "pending"}, str(waits)
        facts = {"correction": made.number, "refund": made.refund or None, "further": str(made.further), "too_much": str(made.too_much)}
        paid = f", {made.further} go back as {made.refund}" if made.refund else ""
        return facts, f"corrected ({made.number}){paid}"


def _line(said: str) -> dict[str, Any]:
    found = LINE.fullmatch(said)
    if found is None:
        raise CommandError(f"--line: expected SKU=ACCEPTED, SKU=ACCEPTED,REFUSED or SKU@PRICE=ACCEPTED, not {said!r}")
    line: dict[str, Any] = {"sku": found["sku"], "accepted": int(found["accepted"]), "refused": int(found["refused"] or 0)}
    return line | ({"unit_price": found["price"]} if found["price"] else {})
