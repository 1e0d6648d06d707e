"""Draw docs/state-machine.md from supervision/states.py, the only copy of the states and their moves."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, CommandParser

from supervision.management.base import Command as Base
from supervision.states import (
    FINAL_RUN_STATES,
    FINAL_STEP_STATES,
    RUN_MOVES,
    STEP_MOVES,
    Direction,
    Effect,
    Move,
    ProcessState,
    RunState,
)

HEAD = """# States

This page is drawn by `python manage.py state_machine --write` from `supervision/states.py`; a test fails where the
two differ. A *run* is one order's workflow instance, a *step* is one row of it in one direction (`do` or `undo`).
Every move is one conditional `UPDATE`, committed together with its row in `supervision_stepevent`.
"""


class Command(Base):
    """Print, write or check the page."""

    help = (
        "Draw the state machine from the code. Prints the page; --write stores it as docs/state-machine.md, "
        "--check exits 1 where that file differs from the code."
    )
    needs_database = False
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        how = parser.add_mutually_exclusive_group()
        how.add_argument("--write", action="store_true", help="write docs/state-machine.md")
        how.add_argument("--check", action="store_true", help="exit 1 where docs/state-machine.md is out of date")

    def handle(self, *args: Any, **options: Any) -> None:
        page = draw()
        path = Path(settings.BASE_DIR) / "docs" / "state-machine.md"
        if options["write"]:
            path.parent.mkdir(exist_ok=True)
            path.write_text(page, encoding="utf-8")
            self.stdout.write(f"wrote {path}")
        elif options["check"]:
            if not path.is_file() or path.read_text(encoding="utf-8") != page:
                raise CommandError(f"{path} is out of date: run manage.py state_machine --write")
        else:
            self.stdout.write(page, ending="")


def draw() -> str:
    """The whole page."""
    return "\n".join(
        [
            HEAD,
            "## Run",
            "",
            *diagram(RUN_MOVES, FINAL_RUN_STATES),
            "",
            *table(RUN_MOVES),
            "",
            f'Final: {words(state for state in RunState if state in FINAL_RUN_STATES)}. The console calls Compensating "Undoing".',
            "",
            "## Step",
            "",
            *diagram(STEP_MOVES, FINAL_STEP_STATES),
            "",
            *table(STEP_MOVES),
            "",
            f"Final: {words(state for state in ProcessState if state in FINAL_STEP_STATES)}.",
            f"Directions: {words(Direction)}. Effects: {words(Effect)}.",
            "",
        ]
    )


def diagram(moves: Iterable[Move], final: Iterable[str]) -> list[str]:
    """The moves as a Mermaid drawing."""
    lines = [f"    {move.source or '[*]'} --> {move.target}: {move.mover}" for move in moves]
    ends = [f"    {state} --> [*]" for state in sorted(final)]
    return ["```mermaid", "stateDiagram-v2", *lines, *ends, "```"]


def table(moves: Iterable[Move]) -> list[str]:
    """The same moves as a table, with their reasons."""
    rows = [f"| {move.source or '(new)'} | {move.target} | {move.mover} | {move.why} |" for move in moves]
    return ["| From | To | Moved by | When |", "|---|---|---|---|", *rows]


def words(names: Iterable[str]) -> str:
    """The names as `a`, `b`, `c`."""
    return ", ".join(f"`{name}`" for name in names)
