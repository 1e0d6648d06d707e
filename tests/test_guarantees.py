"""docs/guarantees.md: every hazard has a row, every named test exists, every failpoint is explained."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from supervision.runtime import failpoints

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "guarantees.md").read_text()
ROWS = {row[0]: row for row in re.findall(r"^\| (H\d+) \|(.*)\|(.*)\|(.*)\|$", PAGE, re.MULTILINE)}
HAZARDS = 54
CASES = {row[0]: row for row in re.findall(r"^\| (\d+[a-z]) \|(.*)\|(.*)\|$", PAGE, re.MULTILINE)}
CASES_OF_WORKFLOWS = {1: 2, 2: 1, 3: 1, 4: 7, 5: 1, 6: 2, 7: 4, 8: 2, 9: 3, 10: 2, 11: 1, 12: 4, 13: 2, 14: 2, 15: 2}


def known() -> set[str]:
    return {
        name for path in (ROOT / "tests").rglob("test_*.py") for name in re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.M)
    }


def left_out() -> set[str]:
    """The tests that the suite leaves out with all their cases."""
    functions = (node for path in (ROOT / "tests").rglob("test_*.py") for node in ast.parse(path.read_text()).body)
    marks = ((node.name, map(ast.unparse, node.decorator_list)) for node in functions if isinstance(node, ast.FunctionDef))
    return {name for name, decorators in marks if "pytest.mark.nightly" in decorators}


NAMED = sorted(set(re.findall(r"`(test_\w+)`", PAGE)))


def test_every_test_that_the_guarantees_name_exists() -> None:
    assert len(NAMED) > 100
    assert set(NAMED) - known() == set()


def test_the_suite_contains_a_test_of_every_row():
    proofs = {number: set(re.findall(r"`(test_\w+)`", row[-1])) for number, row in {**ROWS, **CASES}.items()}
    nightly = left_out()

    assert nightly
    assert [number for number, names in proofs.items() if names and names <= nightly] == []


def test_every_hazard_is_met_and_proven_or_does_not_apply() -> None:
    rows = [ROWS[f"H{number}"] for number in range(1, HAZARDS + 1)]

    assert [number for number, _, how, proof in rows if "`test_" not in proof and "does not apply yet" not in how] == []


def test_every_case_of_the_hazards_of_workflows_has_a_row_and_a_test():
    wanted = [f"{hazard}{letter}" for hazard, cases in CASES_OF_WORKFLOWS.items() for letter in "abcdefg"[:cases]]

    assert list(CASES) == wanted
    assert [number for number, (_, _, proof) in CASES.items() if "`test_" not in proof] == []


def test_every_failpoint_is_explained() -> None:
    section = PAGE.partition("## The crash matrix")[2]

    assert [name for name in failpoints.NAMES if f"`{name}`" not in section] == []
