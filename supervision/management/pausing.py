"""Shared by `pause` and `resume`: the options, and the pause's target."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from supervision.management.acting import OrderCommand, find_order
from supervision.models import Pause


class PauseCommand(OrderCommand):
    """A command about one order, one agent, one workflow or all."""

    def add_arguments(self, parser: CommandParser) -> None:
        what = parser.add_mutually_exclusive_group(required=True)
        what.add_argument("--order", metavar="ID", help="one order, as `orders` lists it; also before it is taken up")
        what.add_argument("--agent", metavar="NAME", help="every step of this agent")
        what.add_argument("--workflow", metavar="NAME", help="every order of this workflow")
        what.add_argument("--all", action="store_true", help="everything")
        parser.add_argument("--reason", required=True, metavar="TEXT", help="why; kept with the pause")
        parser.add_argument("--by", metavar="USER", help="the account that acts, for the record (default: the shell's user)")
        parser.add_argument("--json", action="store_true", help="one JSON object instead of text")

    def target(self, options: dict[str, Any]) -> tuple[str, str]:
        """The scope and the name of the pause's target."""
        if options["all"]:
            return Pause.Scope.ALL, ""
        if options["agent"] is not None:
            return Pause.Scope.AGENT, options["agent"]
        if options["workflow"] is not None:
            return Pause.Scope.WORKFLOW, options["workflow"]
        return Pause.Scope.ORDER, find_order(options["order"]).key


def facts(row: Pause) -> dict[str, Any]:
    """One pause, for JSON."""
    names = ("scope", "name", "reason", "paused_by", "paused_at", "until", "lifted_at", "lifted_by", "lift_reason")
    return {name: getattr(row, name) for name in names}
