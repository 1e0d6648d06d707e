"""Shared by operators' commands: finding a run, the acting account, and the base of the actions on runs."""

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

from supervision.errors import AwaitsApproval, Refused, UnknownRun
from supervision.insight import directory
from supervision.management.base import Command

DASHED_ID = re.compile(r"-[A-Za-z0-9_-]{21}")  # as long as a public id, and longer than any option


def find_order(said: str) -> directory.Entry:
    """The run that is named so, as the application's directory finds it."""
    said = said.removeprefix("\\")  # see OrderCommand
    entry = directory.find(said)
    if entry is None:
        known_by = directory.current().known_by
        raise CommandError(f"no order {said!r}: give its {known_by}, as `manage.py orders` lists them")
    return entry


def find_user(name: str) -> AbstractBaseUser:
    """The account of this name."""
    model = get_user_model()
    try:
        return model.objects.get_by_natural_key(name)
    except model.DoesNotExist:
        raise CommandError(f"no account named {name!r}") from None


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
    most_ids, asks_reason = "+", True  # as the parser takes them

    @abstractmethod
    def act(self, key: str, *, by: Any, reason: str, options: dict[str, Any]) -> str:
        """Act on one order; return the new state of its run. Raises Refused."""

    def remark(self, key: str, state: str) -> str:
        """What the new state alone does not say; empty for most actions."""
        return ""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("ids", nargs=self.most_ids, metavar="ID", help=f"an order's {directory.current().known_by.replace('its ', '')}")
        parser.add_argument("--reason", required=self.asks_reason, metavar="TEXT", help="why; kept in the order's history")
        parser.add_argument("--by", metavar="USER", help="the account that acts, for its history (default: the shell's user)")
        parser.add_argument("--json", action="store_true", help="one JSON object per order")

    def handle(self, *args: Any, **options: Any) -> None:
        by, reason = actor(options)
        failed = []
        for said in (text.removeprefix("\\") for text in options["ids"]):
            try:
                key = find_order(said).key
                state = self.act(key, by=by, reason=reason, options=options)
            except AwaitsApproval as waits:
                if options["json"]:
                    self.say_json({"id": said, "approval": waits.approval, "state": "pending"})
                else:
                    self.stdout.write(f"{said}: {waits}")
            except (CommandError, UnknownRun, Refused) as problem:
                failed.append(f"{said}: {problem}")
                if options["json"]:
                    self.say_json({"id": said, "error": getattr(problem, "code", "unknown_run"), "message": str(problem)})
                elif len(options["ids"]) > 1:
                    self.stderr.write(failed[-1])
            else:
                remark = self.remark(key, state)
                if options["json"]:
                    self.say_json({"id": key, "process_state": state} | ({"remark": remark} if remark else {}))
                else:
                    self.stdout.write(f"{said}: {state}. {remark}" if remark else f"{said}: {state}")
        if failed:
            raise CommandError(failed[0] if len(options["ids"]) == 1 else f"{len(failed)} of {len(options['ids'])} refused")


def actor(options: dict[str, Any]) -> tuple[Any, str]:
    """Who acts, and why, from these options of an operator's command."""
    reason = options["reason"].strip()
    if not reason:
        raise CommandError("--reason must say something")
    return find_user(options["by"]) if options["by"] else f"command ({shell_user()})", reason


def shell_user() -> str:
    """The operating system's name of the user who runs this command."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "unknown"
