"""`./run mutants` distinguishes mutations that are caught, that survive, and that prove nothing."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.mutants import page, runner, tables
from tests.mutants.bench import Ran
from tests.mutants.mutation import ROOT, MovedOn, Mutation, apply, places_of_tests
from tests.mutants.runner import Verdict

ROW_AND_BUG = ("S9", "a workflow may have no steps")
IN_WORKFLOW = ("supervision/workflow.py", "        if not self.steps:\n", "        if False:\n")
REFUSED = "test_a_wrong_workflow_is_refused_with_its_fault_named"


def a_mutation(**other: str) -> Mutation:
    """A mutation that is caught, with these changes."""
    fields = dict(zip(("row", "bug", "file", "old", "new", "caught_by"), (*ROW_AND_BUG, *IN_WORKFLOW, REFUSED), strict=True))
    return Mutation(**{**fields, **other})


def ran(**names: set[str]) -> Ran:
    """A result of pytest."""
    kinds = {kind: frozenset(names.get(kind, ())) for kind in ("passed", "failed", "errors", "skipped")}
    return Ran(**kinds, seconds=1.0, output="the last line")


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_each_mutation_gets_its_verdict_and_the_sample_is_caught():
    tried = {
        "caught": a_mutation(),
        "equivalent": a_mutation(old="        if not self.steps:\n", new="        if len(self.steps) == 0:\n"),
        "moved on": a_mutation(old="if not self.stairs:"),
        "without a test": a_mutation(caught_by="test_that_does_not_exist"),
        "not collected": a_mutation(new="        if not self.steps\n"),  # a syntax error proves nothing
    }

    sample = tables.chosen(tables.SAMPLE)

    results = runner.run([*tried.values(), *sample], jobs=2, told=lambda result: None)

    verdicts = {result.mutation: result.verdict for result in results}
    assert {verdicts[mutation] for mutation in sample} == {Verdict.CAUGHT}
    assert {name: verdicts[mutation] for name, mutation in tried.items()} == {
        "caught": Verdict.CAUGHT,
        "equivalent": Verdict.SURVIVED,
        "moved on": Verdict.MOVED_ON,
        "without a test": Verdict.MOVED_ON,
        "not collected": Verdict.UNPROVEN,
    }


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        ({"failed": {"test_a"}}, Verdict.CAUGHT),
        ({"failed": {"test_a"}, "passed": {"test_b"}}, Verdict.CAUGHT),
        ({"passed": {"test_a"}}, Verdict.SURVIVED),
        ({"errors": {"test_a"}}, Verdict.UNPROVEN),
        ({"skipped": {"test_a"}}, Verdict.UNPROVEN),
        ({}, Verdict.UNPROVEN),
    ],
)
def test_only_a_test_that_failed_has_caught_a_mutation(found, verdict):
    assert runner.judge(ran(**found))[0] is verdict


def test_a_mutation_is_applied_and_taken_back_to_the_second(tmp_path):
    file = tmp_path / "module.py"
    file.write_text("answer = 42\n")
    before = file.stat().st_mtime_ns
    one = Mutation("S1", "wrong answer", "module.py", "42", "43", "test_it")

    original = apply(one, tmp_path, 1)
    mutated = file.read_text(), file.stat().st_mtime_ns // 10**9
    original.put_back()
    apply(one, tmp_path, 2)
    again = file.stat().st_mtime_ns // 10**9

    assert mutated[0] == "answer = 43\n"
    assert len({before // 10**9, mutated[1], again}) == 3  # Python compiles each of the three anew


@pytest.mark.parametrize(("text", "words"), [("one", "0 times"), ("42 42", "2 times"), (None, "does not exist")])
def test_a_text_that_is_not_there_once_is_named(tmp_path, text, words):
    if text is not None:
        (tmp_path / "module.py").write_text(text)

    with pytest.raises(MovedOn, match=words):
        Mutation("S1", "wrong answer", "module.py", "42", "43", "test_it").mutated(tmp_path)


def test_every_mutation_fits_the_tree_and_its_requirement():
    rows = dict(re.findall(r"^\| (\w+) \|(.*)$", page.PAGE.read_text(), re.M))
    places = places_of_tests()

    assert {
        title: wrong for mutation in tables.MUTATIONS if (wrong := wrong_with(mutation, rows, places)) for title in [str(mutation)]
    } == {}


def wrong_with(mutation: Mutation, rows: dict[str, str], places: dict[str, list[str]]) -> str | None:
    """Why a mutation proves nothing of its requirement."""
    try:
        mutated = mutation.mutated(ROOT)
    except MovedOn as problem:
        return str(problem)
    if not mutated or "|" in mutation.bug:
        return "it changes nothing, or its title breaks the table"
    if len(places.get(mutation.caught_by, ())) != 1:
        return f"not one test has the name {mutation.caught_by}"
    return None if f"`{mutation.caught_by}`" in rows.get(mutation.row, "") else f"its row does not name {mutation.caught_by}"


def test_no_mutation_stands_twice():
    assert len({(mutation.row, mutation.bug) for mutation in tables.MUTATIONS}) == len(tables.MUTATIONS)


def test_a_row_is_asked_for_by_its_number_and_an_unknown_one_is_refused():
    assert {mutation.row for mutation in tables.chosen(["s10", "X7"])} == {"S10", "X7"}
    with pytest.raises(ValueError, match="Z9"):
        tables.chosen(["S10", "z9"])


def test_the_command_line_refuses_what_makes_no_sense_in_one_line():
    done = subprocess.run(
        [sys.executable, "-m", "tests.mutants", "Z9", "--jobs", "2"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )

    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith("error: no mutation is known for Z9")
