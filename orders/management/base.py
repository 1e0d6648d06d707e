"""Shared by the shop's commands: finding an order by its public id or number, and the base of the operators' actions."""

from __future__ import annotations

import getpass
import re
import sys
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractBaseUser
from django.core.management.base import CommandError, CommandParser

from orders import queries
from orders.queries import OrderView
from supervision.errors import Refused, UnknownRun
from supervision.management.base import Command

DASHED_ID = re.compile(r"-[A-Za-z0-9_-]{21}")  # as long as a public id, and longer than any option
NUMBER = re.compile(r"[0-9](?:[0-9 .-]*[0-9])?")


def find_order(said: str) -> OrderView:
    """The order of this public id or number (with or without its separators)."""
    said = said.removeprefix("\\")  # see OrderCommand
    view = queries.order_view(said, inside=True)
    if view is None and NUMBER.fullmatch(said):
        digits = re.sub(r"[^0-9]", "", said)
        number = "-".join(filter(None, (digits[:3], digits[3:6], digits[6:9], digits[9:])))
        public_id = queries.public_id_of(number)
        view = queries.order_view(public_id, inside=True) if public_id else None
    if view is None:
        raise CommandError(f"no order {said!r}: give its public id or its number, as `manage.py orders` lists them")
    return view


def find_user(name: str) -> AbstractBaseUser:
    """The account of this name."""
    model = get_user_model()
    try:
        return model.objects.get_by_natural_key(name)
    except model.DoesNotExist:
        raise CommandError(f"no account named {name!r}: make one with `manage.py create_user`") from None


class OrderCommand(Command):
    """A command that takes orders' ids. One in 64 public ids begins with a dash: the parser must not take it for an option."""

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        parser = super().create_parser(prog_name, subcommand, **kwargs)
        parse = parser.parse_args

        def parse_args(args: Sequence[str] | None = None, namespace: Any = None) -> Any:
            given = sys.argv[1:] if args is None else args
            return parse([f"\\{arg}" if DASHED_ID.fullmatch(arg) else arg for arg in given], namespace)

        parser.parse_args = parse_args  # type: ignore[method-assign, assignment]
        return parser


class OperatorCommand(OrderCommand):
    """An operator's action on one order or several. Each order is tried, even if others were refused."""

    moves_orders = True

    @abstractmethod
    def act(self, key: str, *, by: Any, reason: str, options: dict[str, Any]) -> str:
        """Act on one order; return the new state of its run. Raises Refused."""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("ids", nargs="+", metavar="ID", help="an order's public id or number")
        parser.add_argument("--reason", required=True, metavar="TEXT", help="why; kept in the order's history")
        parser.add_argument("--by", metavar="USER", help="the account that acts, for its history (default: the shell's user)")
        parser.add_argument("--json", action="store_true", help="one JSON object per order")

    def handle(self, *args: Any, **options: Any) -> None:
        reason = options["reason"].strip()
        if not reason:
            raise CommandError("--reason must say something")
        by: Any = find_user(options["by"]) if options["by"] else f"command ({shell_user()})"
        failed = []
        for said in (text.removeprefix("\\") for text in options["ids"]):
            try:
                key = find_order(said).public_id
                state = self.act(key, by=by, reason=reason, options=options)
            except (CommandError, UnknownRun, Refused) as problem:
                failed.append(f"{said}: {problem}")
                if options["json"]:
                    self.say_json({"id": said, "error": getattr(problem, "code", "unknown_run"), "message": str(problem)})
                elif len(options["ids"]) > 1:
                    self.stderr.write(failed[-1])
            else:
                self.say_json({"id": key, "process_state": state}) if options["json"] else self.stdout.write(f"{said}: {state}")
        if failed:
            raise CommandError(failed[0] if len(options["ids"]) == 1 else f"{len(failed)} of {len(options['ids'])} refused")


def shell_user() -> str:
    """The operating system's name of the user who runs this command."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "unknown"
