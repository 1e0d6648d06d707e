"""docs/requirements.md: every requirement has its row, and every module and test that a row names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "requirements.md").read_text()
ROWS = {row[0]: row[1:] for row in re.findall(r"^\| ([A-Z]\d+) \| (.*) \| (.*) \| (.*) \|$", PAGE, re.MULTILINE)}
NUMBERS = {"S": 47, "C": 22, "R": 18, "X": 15}
EVERY_ROW = [f"{letter}{number}" for letter, last in NUMBERS.items() for number in range(1, last + 1)]
KNOWN = {name for path in (ROOT / "tests").rglob("test_*.py") for name in re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.M)}


def named(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


@pytest.mark.parametrize("row", EVERY_ROW)
def test_every_requirement_is_held_by_a_module_and_proven_by_a_test(row: str) -> None:
    asked, modules, tests = ROWS[row]

    assert asked
    assert named(modules)
    assert [path for path in named(modules) if not (ROOT / path).is_file()] == []
    assert named(tests)
    assert [name for name in named(tests) if name not in KNOWN] == []


def test_there_is_no_row_that_nobody_asked_for() -> None:
    assert sorted(ROWS) == sorted(EVERY_ROW)
    assert len(re.findall(r"^\| [A-Z]\d+ \|", PAGE, re.MULTILINE)) == len(EVERY_ROW)
