"""The last column of docs/requirements.md: the mutations of each row."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tests.mutants.mutation import ROOT, Mutation

PAGE = ROOT / "docs" / "requirements.md"
COLUMNS = 4  # the columns before the mutations: number, requirement, module, test
ROW = re.compile(r"^\| ([A-Z]\d+) \|")
HEAD, RULE = "| # | Asked |", re.compile(r"^(\|---)+\|$")


def cells(line: str) -> list[str]:
    """A row's cells."""
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def with_mutations(page: str, mutations: Iterable[Mutation]) -> str:
    """The page with the mutations of each row."""
    bugs: dict[str, list[str]] = {}
    for mutation in mutations:
        bugs.setdefault(mutation.row, []).append(mutation.bug)
    lines = []
    for line in page.splitlines():
        if found := ROW.match(line):
            line = _row([*cells(line)[:COLUMNS], "; ".join(bugs.get(found[1], ["none"]))])
        elif line.startswith(HEAD):
            line = _row([*cells(line)[:COLUMNS], "Has to fail when"])
        elif RULE.match(line):
            line = "|---" * (COLUMNS + 1) + "|"
        lines.append(line)
    return "\n".join(lines) + "\n"


def _row(found: list[str]) -> str:
    return f"| {' | '.join(found)} |"
