"""The plan of a verb, as commands show it, and the option that names the plan that an operator has seen."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandError, CommandParser

from supervision.errors import Refused
from supervision.management.acting import find_order
from supervision.management.base import Command
from supervision.operations import moving, previews, resuming


def plan_of(key: str, verb: str, *, step: str | None = None, to: int | None = None) -> previews.Plan:
    """What the verb would do to this order. step: with `resume`, the step from which it goes on. to: with `move`, the version."""
    if verb == "move":
        return moving.plan(key, to)
    return resuming.plan(key, str(step)) if verb == "resume" else previews.plan(key, verb)


def say_plan(command: Command, said: str, verb: str, *, step: str | None = None, to: int | None = None, as_json: bool) -> None:
    """Print the plan of the order that is named so. Raises Refused if the verb is not possible."""
    entry = find_order(said)
    if entry.run_id is None:
        raise previews.without_run(entry.key)
    found = plan_of(entry.key, verb, step=step, to=to)
    if as_json:
        command.say_json(asdict(found))
    else:
        rows = [(one.name, one.direction, one.action, "reused" if one.key_reused else "", one.idempotency_key) for one in found.steps]
        command.say_table(("STEP", "DIRECTION", "ACTION", "KEY IS", "KEY"), rows)
        command.stdout.write(f"version of the plan: {found.version}")
    if found.refusals:
        raise Refused(" ".join(found.refusals), "not_possible")


def add_plan_version(parser: CommandParser) -> None:
    """The option `--plan-version`."""
    words = "only if the order is still as in the plan of this version (`manage.py plan ID VERB` or --dry-run shows it)"
    parser.add_argument("--plan-version", metavar="VERSION", help=words)


def check_plan_version(options: dict[str, Any]) -> None:
    """Raise CommandError if the version of a plan is given for more than one order, or with --dry-run."""
    if options["plan_version"] is None:
        return
    if len(options["ids"]) != 1:
        raise CommandError("--plan-version belongs to one order: give a single ID with it")
    if not options["plan_version"].strip():
        raise CommandError("--plan-version: expected the version that `manage.py plan` shows")
    if options.get("dry_run"):
        raise CommandError("--plan-version goes with the verb itself, not with --dry-run")
