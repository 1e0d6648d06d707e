"""Check the state store's invariants on a live database."""

from __future__ import annotations

import sys
from argparse import ArgumentTypeError
from collections import Counter
from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandParser

from supervision.audit import liveness, registry
from supervision.management.base import Command as Base


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1
    if not 0 <= seconds <= 10**8:
        raise ArgumentTypeError(f"expected seconds, from 0 on, not {text!r}")
    return seconds


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

    def handle(self, *args: Any, **options: Any) -> None:
        checks = registry.checks()
        if options["list"]:
            for check in checks:
                self.stdout.write(check.invariant)
            return
        found: list[registry.Violation] = []
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
