"""Run the whole shop locally, with an embedded database and simulated services."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from sasproject import ports
from sasproject.stack import DemoError, Options, Stack


class Command(BaseCommand):
    """The command line of `sasproject.stack`."""

    help = "Start every role with an embedded database and simulated services; Ctrl-C stops all."
    requires_system_checks: list[str] = []  # each role checks itself, in parallel

    def add_arguments(self, parser: CommandParser) -> None:
        """The launcher's options."""
        parser.add_argument("--port", type=ports.number, help="where the web pages are (default: PORT, or 8000 or the next free one)")
        parser.add_argument("--no-simulators", action="store_true", help="use the payment, carrier and mail services of the environment")
        parser.add_argument("--no-traffic", action="store_true", help="place no orders")
        parser.add_argument(
            "--state-dir", type=Path, default=settings.STATE_DIR, metavar="DIR", help="database and logs (default: %(default)s)"
        )
        parser.add_argument("--ready-file", type=Path, metavar="FILE", help="write one JSON object there when everything answers")

    def say(self, text: str) -> None:
        """Write one line and flush it: another program may read the output from a pipe."""
        self.stdout.write(text)
        self.stdout.flush()

    def handle(self, *args: Any, **options: Any) -> None:
        """Run until stopped."""
        chosen = Options(
            state_dir=options["state_dir"].resolve(),
            port=options["port"],
            simulators=not options["no_simulators"],
            traffic=not options["no_traffic"],
            ready_file=options["ready_file"] and options["ready_file"].resolve(),
        )
        try:
            Stack(chosen, self.say).run()
        except (DemoError, OSError) as problem:  # a full disk, a directory that may not be written
            raise CommandError(str(problem)) from problem
