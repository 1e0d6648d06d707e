"""docs/requirements.md: every requirement has a row; every module, test and mutation that a row names exists."""

from __future__ import annotations

import re
from pathlib import Path

from tests.mutants import page
from tests.mutants.tables import MUTATIONS

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "requirements.md").read_text()
ROWS = {row[0]: row[1:] for row in re.findall(r"^\| ([A-Z]\d+) \| (.*) \| (.*) \| (.*) \| (.*) \|$", PAGE, re.MULTILINE)}
NUMBERS = {"S": 48, "C": 22, "R": 19, "X": 15, "W": 39, "T": 30}
EVERY_ROW = [f"{letter}{number}" for letter, last in NUMBERS.items() for number in range(1, last + 1)]
KNOWN = {name for path in (ROOT / "tests").rglob("test_*.py") for name in re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.M)}


def named(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_every_requirement_is_held_by_a_module_and_proven_by_a_test() -> None:
    assert [row for row in EVERY_ROW if not all(map(named, ROWS[row][1:3])) or not ROWS[row][0]] == []
    assert [(row, path) for row in EVERY_ROW for path in named(ROWS[row][1]) if not (ROOT / path).is_file()] == []
    assert [(row, name) for row in EVERY_ROW for name in named(ROWS[row][2]) if name not in KNOWN] == []


def test_there_is_no_row_that_nobody_asked_for() -> None:
    assert sorted(ROWS) == sorted(EVERY_ROW)
    assert len(re.findall(r"^\| [A-Z]\d+ \|", PAGE, re.MULTILINE)) == len(EVERY_ROW)


def test_every_requirement_names_the_mutations_that_its_test_has_to_notice() -> None:
    known = {row: [mutation for mutation in MUTATIONS if mutation.row == row] for row in EVERY_ROW}

    assert [row for row in EVERY_ROW if not known[row]] == [], "no mutation breaks it: add one to tests/mutants"
    listed = {row: "; ".join(mutation.bug for mutation in known[row]) for row in EVERY_ROW}
    assert {row: ROWS[row][3] for row in EVERY_ROW} == listed, "./run mutants --write brings the page up to date"
    caught_by = {row: {mutation.caught_by for mutation in known[row]} for row in EVERY_ROW}
    assert [row for row in EVERY_ROW if not caught_by[row] <= set(named(ROWS[row][2]))] == []


def test_the_page_is_as_the_tables_say() -> None:
    assert page.with_mutations(PAGE, MUTATIONS) == PAGE, "./run mutants --write brings it up to date"
