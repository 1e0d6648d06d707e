"""docs/requirements.md: every requirement has a row; every module, test and mutation that a row names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("row", EVERY_ROW)
def test_every_requirement_is_held_by_a_module_and_proven_by_a_test(row: str) -> None:
    asked, modules, tests, _mutations = ROWS[row]

    assert asked
    assert named(modules)
    assert [path for path in named(modules) if not (ROOT / path).is_file()] == []
    assert named(tests)
    assert [name for name in named(tests) if name not in KNOWN] == []


def test_there_is_no_row_that_nobody_asked_for() -> None:
    assert sorted(ROWS) == sorted(EVERY_ROW)
    assert len(re.findall(r"^\| [A-Z]\d+ \|", PAGE, re.MULTILINE)) == len(EVERY_ROW)


@pytest.mark.parametrize("row", EVERY_ROW)
def test_every_requirement_names_the_mutations_that_its_test_has_to_notice(row: str) -> None:
    known = [mutation for mutation in MUTATIONS if mutation.row == row]

    assert known, f"no mutation breaks {row}: add one to tests/mutants"
    assert ROWS[row][3] == "; ".join(mutation.bug for mutation in known), "./run mutants --write brings the page up to date"
    assert {mutation.caught_by for mutation in known} <= set(named(ROWS[row][2]))


def test_the_page_is_as_the_tables_say() -> None:
    assert page.with_mutations(PAGE, MUTATIONS) == PAGE, "./run mutants --write brings it up to date"
