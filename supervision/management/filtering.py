"""The options by which commands choose runs: the filters of the application's list, under the same names."""

from __future__ import annotations

import re
from typing import Any

from django.core.management.base import CommandError, CommandParser

from supervision.insight import directory
from supervision.insight.filters import STATES, BadFilter
from supervision.postgres import db

SHORT = {"error_code": ["--error"], "process_state": ["--state"], "created_after": ["--after"], "created_before": ["--before"]}


def add_filters(parser: CommandParser) -> None:
    """One option for each filter, and `--since`."""
    group = parser.add_argument_group("filters")
    for name, field in directory.current().filters.fields.items():
        words = [f"--{name.replace('_', '-')}", *(short for short in SHORT.get(name, ()) if short != "--error")]
        choices = STATES if field.kind == "state" else None
        group.add_argument(*words, dest=f"by_{name}", choices=choices, metavar=field.kind.upper(), help=str(field.help or field.label))
    text = "the code of what holds the order; where no order has this code, a part of the error, such as a service's own code"
    group.add_argument("--error", metavar="TEXT", help=text)
    group.add_argument("--since", metavar="TIME", help="placed within this time, such as 90m, 1h or 2d; or after this moment")


def given_filters(options: dict[str, Any]) -> dict[str, str]:
    """The filters among these options."""
    given = {name.removeprefix("by_"): value for name, value in options.items() if name.startswith("by_") and value is not None}
    if options.get("since"):
        if "created_after" in given:
            raise CommandError("give --since or --created-after, not both")
        given["created_after"] = since(options["since"])
    if options.get("error"):
        name = "error_code" if directory.current().filters.source("error_code", options["error"]).exists() else "error_text"
        if name in given:
            raise CommandError(f"give --error or --{name.replace('_', '-')}, not both")
        given[name] = options["error"]
    return given


def where(words: list[str]) -> dict[str, str]:
    """Filters as `name=value` words."""
    given = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not sign:
            raise CommandError(f"--where {word}: expected NAME=VALUE")
        given[name] = value
    return given


def in_one_line(bad: BadFilter) -> CommandError:
    """The error of a command about a filter."""
    return CommandError(f"{bad.name}: {bad}")


def since(said: str) -> str:
    """The moment that `1h` or `2d` means: so long ago, by the database's clock; any other text as it is."""
    found = re.fullmatch(r"([0-9]{1,6})([smhd])", said)
    if found is None:
        return said
    seconds = int(found[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[found[2]]
    return str(db.run("SELECT clock_timestamp() - %(age)s::float8 * interval '1 s'", {"age": seconds})[0][0].isoformat())
