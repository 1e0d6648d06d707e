"""Check the state store's invariants on a live database."""

from __future__ import annotations

import re
import sys
from argparse import ArgumentTypeError
from collections import Counter
from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandParser

from supervision.audit import chain, liveness, registry
from supervision.management.base import Command as Base


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1
    if not 0 <= seconds <= 10**8:
        raise ArgumentTypeError(f"expected seconds, from 0 on, not {text!r}")
    return seconds


def _head(text: str) -> str:
    if not re.fullmatch("[0-9a-f]{64}", text.lower()):
        raise ArgumentTypeError(f"expected the 64 hexadecimal digits that --head prints, not {text!r}")
    return text.lower()


class Command(Base):
    """Exit 0, or 1 with every broken invariant named."""

    help = (
        "Check the invariants of the state store: every run, step, event and submission against every other. "
        "Safe beside a running system (each check is one read-only statement, hence one moment in time). "
        "Exits 0 when everything holds, 1 with each violation named."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
        parser.add_argument(
            "--bound",
            type=_seconds,
            metavar="SECONDS",
            help="how long an order may stand still without an explanation (default: the setting LIVENESS_SECONDS)",
        )
        parser.add_argument("--list", action="store_true", help="only name the invariants that are checked")

        parser.add_argument("--head", action="store_true", help="only print the head of the history's chain; keep it outside the database")
        parser.add_argument(
            "--since-head",
            type=_head,
            metavar="HEX",
            help="a head that --head printed earlier: the chain must still contain it, so that nothing before it was rewritten",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        checks = registry.checks()
        if options["list"]:
            for check in checks:
                self.stdout.write(check.invariant)
            return
        if options["head"]:
            self.say_head(chain.head(), options["json"])
            return
        found: list[registry.Violation] = []
        if kept := options["since_head"]:
            found += [registry.Violation("the history's chain contains the head that was kept", detail) for detail in chain.since(kept)]
        with liveness.within(options["bound"]), self.progress(len(checks), "checks") as progress:
            for check in checks:
                if options["verbosity"] > 1:
                    self.stderr.write(check.invariant, style_func=str)
                found += registry.violations_of(check)
                progress.advance()
        if options["json"]:
            self.say_json({"checks": len(checks), "violations": [asdict(violation) for violation in found]})
        else:
            self.say_violations(found)
            broken = Counter(violation.invariant for violation in found)
            summary = f"{len(broken)} broken" if broken else "all hold"
            self.stdout.write(f"{len(checks)} invariants checked in {progress.seconds:.1f} s: {summary}")
        if found:
            sys.exit(1)

    def say_violations(self, found: list[registry.Violation]) -> None:
        """One line each, the invariant's name first."""
        for violation in found:
            self.stdout.write(f"VIOLATED {violation.invariant}: {violation.detail}")

    def say_head(self, head: chain.Head | None, as_json: bool) -> None:
        """The newest batch's number, time and head; an empty chain has none."""
        if as_json:
            self.say_json({"head": head and {**head._asdict(), "made_at": head.made_at.isoformat()}})
        elif head is None:
            self.stdout.write("no batch yet: the supervisor makes the first one")
        else:
            self.stdout.write(f"{head.head} (batch {head.number}, {head.made_at.isoformat(timespec='seconds')})")
