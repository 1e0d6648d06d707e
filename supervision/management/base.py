"""The base classes of our commands: one clear line on bad input, stable JSON, progress, a loop that stops cleanly.

A command parses its arguments, calls one function of the engine or the shop, and prints.
"""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import date, datetime, timedelta
from decimal import Decimal
from types import FrameType
from typing import Any, Literal, NoReturn

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import Error, InterfaceError, OperationalError, ProgrammingError, close_old_connections, connections
from psycopg.errors import UndefinedColumn, UndefinedTable

from supervision.checks import TAG
from supervision.errors import PlanChanged, Refused, UnknownRun
from supervision.management.progress import Progress
from supervision.management.terminal import SafeOutput
from supervision.plans import comparison, registry
from supervision.postgres import advice, fitness
from supervision.runtime import identity
from supervision.runtime.humanize import utc
from supervision.worker import heartbeats

logger = logging.getLogger(__name__)


class Command(BaseCommand):
    """A command that answers every foreseeable mistake with one line and a non-zero exit."""

    # The other checks import every page, which takes longer than most commands.
    requires_system_checks: list[str] | tuple[str, ...] | Literal["__all__"] = (TAG,)
    needs_database = True
    moves_orders = False  # if true, this code's plans must be the registered ones
    stdout: SafeOutput
    stderr: SafeOutput

    def __setattr__(self, name: str, value: Any) -> None:
        """Escape what is written, wherever Django sets the streams."""
        super().__setattr__(name, SafeOutput.around(value) if name in ("stdout", "stderr") else value)

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        parser = super().create_parser(prog_name, subcommand, **kwargs)
        if parser.called_from_command_line:
            # argparse prints the whole usage before its error message; the message is enough.
            def complain(message: str) -> NoReturn:
                parser.exit(2, f"{parser.prog}: {message} (--help explains)\n")

            parser.error = complain  # type: ignore[method-assign]
        return parser

    def execute(self, *args: Any, **options: Any) -> str | None:
        try:
            if self.needs_database:
                # The engine waits for a database that is away; a user at a shell wants the error at once.
                connections["default"].ensure_connection()
            if self.moves_orders:
                registry.confirm()
            return super().execute(*args, **options)
        except UnknownRun as unknown:
            raise CommandError(str(unknown)) from unknown
        except (PlanChanged, Refused) as refused:
            raise CommandError(f"refused: {refused}") from refused
        except Error as problem:
            raise CommandError(explain(problem)) from problem
        except BrokenPipeError:
            sys.stderr.close()  # the reader (head, less) has closed the pipe
            return None

    def check(self, *args: Any, **options: Any) -> None:
        """Django's system checks, without the plans. Commands that need them confirm them, in one line; the others only read."""
        with comparison.left_out():
            super().check(*args, **options)

    def say_json(self, value: Any) -> None:
        """Print one JSON document; keys keep their order, so the output is stable."""
        self.stdout.write(json.dumps(value, default=_plain, ensure_ascii=False))

    def say_table(self, headers: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Print aligned columns; the last one may have any length. Times are in UTC, and say so."""
        texts = [["-" if cell is None else utc(cell) if isinstance(cell, datetime) else str(cell) for cell in row] for row in rows]
        widths = [max(len(line[i]) for line in [list(headers), *texts]) for i in range(len(headers))]
        for line in [list(headers), *texts]:
            padded = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
            self.stdout.write("  ".join(padded).rstrip())

    def progress(self, total: int | None, what: str) -> Progress:
        """A progress line on standard error, shown only on a terminal."""
        return Progress(total, what, stream=self.stderr)


class LoopCommand(Command):
    """One pass of a role with `--once`, or pass after pass until SIGTERM or Ctrl-C; a JSON object per pass.

    A pass that fails because the database is away is reported and tried again: the loop survives an outage.
    """

    role: str
    default_interval = 1.0
    needs_database = False  # not at the start: the loop waits for it

    def execute(self, *args: Any, **options: Any) -> Any:
        """Run under the role's name, which histories show."""
        identity.set_role(self.role)
        return super().execute(*args, **options)

    @abstractmethod
    def one_pass(self) -> Mapping[str, int]:
        """Do the role's work once; returns the counts."""

    def one_round(self) -> Mapping[str, int]:
        """One pass of the loop, and what else this role's Celery worker would do; returns the counts."""
        report = self.one_pass()
        self.beat(report)
        return report

    def beat(self, report: Mapping[str, int]) -> None:
        """Write the heartbeat of this process."""
        heartbeats.beat(self.role, {**report, "workflows": registry.told()})

    def add_arguments(self, parser: CommandParser) -> None:
        how = parser.add_mutually_exclusive_group()
        how.add_argument("--once", action="store_true", help="one pass, print its JSON, exit")
        how.add_argument("--loop", action="store_true", help="pass after pass until stopped (the default)")
        parser.add_argument(
            "--interval",
            type=positive_seconds,
            default=None,
            metavar="SECONDS",
            help=f"pause between two passes of the loop (default {self.default_interval:g})",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if options["once"]:
            connections["default"].ensure_connection()
            registry.confirm()
            self.say_json(self.one_pass())
            return
        stop = threading.Event()
        with stopping_on_signals(stop):
            self._loop(stop, options["interval"] or self.default_interval, chatty=options["verbosity"] > 1)

    def _loop(self, stop: threading.Event, interval: float, *, chatty: bool) -> None:
        while not stop.is_set():
            close_old_connections()
            try:
                connections["default"].ensure_connection()
                registry.confirm()
                report = self.one_round()
            except (OperationalError, InterfaceError) as problem:
                logger.warning("%s; trying again in %g s", explain(problem), interval)
                connections.close_all()
            else:
                if chatty or any(report.values()):
                    self.say_json(report)
                    self.stdout.flush()
            stop.wait(interval)


@contextmanager
def stopping_on_signals(stop: threading.Event) -> Iterator[None]:
    """Set `stop` at SIGTERM or SIGINT, so that the current pass ends first; then restore the old handlers."""

    def asked(number: int, frame: FrameType | None) -> None:
        stop.set()

    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set handlers
        return
    previous = {number: signal.signal(number, asked) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def explain(problem: Error) -> str:
    """A database error in one line that says what to do about it."""
    if hidden := fitness.hides(problem):
        return unseen(hidden)
    if isinstance(problem.__cause__, UndefinedTable | UndefinedColumn):
        return f"the database at {where()} lacks our tables or their newest columns: run manage.py migrate"
    said = str(problem).strip().splitlines()
    first = said[0] if said else type(problem).__name__
    if isinstance(problem, OperationalError) and connections["default"].connection is None:
        if answered := advice.after(first):
            return f"the database at {where()} says {advice.answer(first)}: {answered}"
        return f"no database is running at {where()}: {advice.current()} ({first})"
    kind = "refused this" if isinstance(problem, ProgrammingError) else "answered"
    return f"the database at {where()} {kind}: {first}"


def unseen(hidden: str) -> str:
    """One line where the database hides its tables from this role (`fitness.hidden`)."""
    return f"the database at {where()} cannot be used: {hidden}: {fitness.SEEN}"


def where() -> str:
    """The database's address without its password."""
    config = settings.DATABASES["default"]
    host = config.get("HOST") or "the local socket"
    port = f":{config['PORT']}" if config.get("PORT") else ""
    return f"{host}{port}/{config.get('NAME', '')}"


def at_least(minimum: int) -> Callable[[str], int]:
    """An argparse type: a whole number not below `minimum`."""

    def whole_number(text: str) -> int:
        value = int(text)
        if value < minimum:
            raise ValueError
        return value

    whole_number.__name__ = f"whole number of at least {minimum}"
    return whole_number


def positive_seconds(text: str) -> float:
    """An argparse type: a number above 0."""
    value = float(text)
    if not 0 < value < 1e9:
        raise ValueError
    return value


positive_seconds.__name__ = "number above 0"


def report_of(report: Any, names: Sequence[str]) -> dict[str, int]:
    """The named figures of a report, in this order."""
    figures = asdict(report)
    return {name: figures[name] for name in names}


def _plain(value: Any) -> Any:
    match value:
        case datetime() | date():
            return value.isoformat().replace("+00:00", "Z")
        case Decimal():
            return str(value)
        case timedelta():
            return value.total_seconds()
        case _ if hasattr(value, "__iter__"):
            return list(value)
    return str(value)
