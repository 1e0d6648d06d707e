"""Check whether this installation can work, and say what to set if it cannot."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandParser

from supervision.management.base import Command as Base
from supervision.operations import doctor
from supervision.operations.doctor import Level


class Command(Base):
    """One line per finding: ok, warn or fail, with what to set."""

    help = (
        "Look at everything an installation needs: settings, database (version, durability, migrations, clock), "
        "broker, the services behind the agents, and signs of life of every role. One line per finding, each with "
        "what to set. Exits 1 when something fails; warnings do not."
    )
    needs_database = False
    requires_system_checks = ()  # a broken setting is a finding here, not a reason to stop

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")

    def handle(self, *args: Any, **options: Any) -> None:
        colours = {Level.OK: self.style.SUCCESS, Level.WARN: self.style.WARNING, Level.FAIL: self.style.ERROR}
        found = []
        for finding in doctor.examine():
            found.append(finding)
            if not options["json"]:
                advice = f" -> {finding.advice}" if finding.advice else ""
                self.stdout.write(f"{finding.level:4}", colours[finding.level], ending="")
                self.stdout.write(f"  {finding.about}: {finding.message}{advice}")
        count = Counter(finding.level for finding in found)
        if options["json"]:
            self.say_json({"ok": not count[Level.FAIL], "findings": [asdict(finding) for finding in found]})
        else:
            self.stdout.write(f"{count[Level.OK]} ok, {count[Level.WARN]} warnings, {count[Level.FAIL]} failures")
        if count[Level.FAIL]:
            sys.exit(1)
