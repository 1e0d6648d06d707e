"""The tutorials' code runs as it stands in the text."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from supervision import agent, testing, workflow
from supervision.agent import get_agent
from supervision.insight import directory

DOCS = Path(__file__).resolve().parents[1] / "docs"
BLOCK = re.compile(r"^```python\n# ([\w/.]+)[^\n]*\n(.*?)^```$", re.M | re.S)


def files_of(page: str) -> dict[str, str]:
    """The files that a page shows, by name."""
    return dict(BLOCK.findall((DOCS / page).read_text()))


def shown(page: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    for file, text in files_of(page).items():
        if "/test_" in file:
            exec(text, names)  # noqa: S102 - our own page
    return {name: test for name, test in names.items() if name.startswith("test_")}


PAGES = ("first-workflow.md", "agents.md", "waiting.md", "branches.md", "children.md", "changing.md")
# Of a whole project, and of a process with workers beside it: `tests/e2e/test_installed_engine.py` runs them.
OUTSIDE = {f"tickets/{name}.py" for name in ("settings", "celery", "__init__", "buy")}
TESTS = {(page, name): test for page in PAGES for name, test in shown(page).items()}


@pytest.fixture
def load(sas) -> Iterator[Any]:
    """`load(page)`: run the page's modules; returns their names. Its workflows are registered for the test."""
    registries = (agent.registered, workflow._workflows, workflow._newest)
    before = [dict(registry) for registry in registries]

    def run(page: str) -> dict[str, Any]:
        names: dict[str, Any] = {}
        for file, text in files_of(page).items():
            if "/test_" not in file and file not in OUTSIDE:
                exec(text, names)  # noqa: S102 - our own page
        return names

    yield run
    for registry, kept in zip(registries, before, strict=True):
        registry.clear()
        registry.update(kept)


@pytest.mark.parametrize(("page", "name"), TESTS, ids=[name for _, name in TESTS])
def test_the_tests_of_the_page_pass(sas, load, page, name):
    load(page)
    TESTS[page, name](sas)


def test_two_durable_steps_take_few_lines_from_nothing_to_a_result():
    files = files_of("first-workflow.md")

    assert sum(bool(line.strip()) for name in ("workflows", "buy") for line in files[f"tickets/{name}.py"].splitlines()) <= 13


def test_the_page_sends_a_signal_once_for_each_transfer(sas, load):
    booking = load("waiting.md")
    run = sas.start("booking", {"arrival": "2020-01-01T12:00:00+00:00", "breakfast": True})
    for _ in range(2):
        booking["payment_arrived"](run.key, {"id": "t1", "amount": "80"})
    sas.run()
    testing.let_pass(1)
    sas.run()
    run.assert_state("Processed")
    assert run.results["order-breakfast"] == {"sent": 12}


def refusing(sas: Any) -> Any:
    return sas.start("gift", {"amount": "501"})


def silent(sas: Any) -> Any:
    """An order whose card is issued, while no answer comes, and the look-up fails, too."""
    service = get_agent("gift-cards").service
    service.lost_answers, service.find = 1, service_is_away
    sas.others_succeed("issue-card")
    run = sas.start("gift", {"amount": "50"})
    sas.advance("10m")
    return run


def service_is_away(_key: str) -> None:
    raise TimeoutError("no answer to the look-up")


def raise_the_limit() -> None:
    service = get_agent("gift-cards").service
    service.issue = lambda key, amount, timeout: service.cards.setdefault(key, "card-1")


OPERATED: dict[str, tuple[Callable[[Any], Any], Callable[[], None]]] = {
    "A refusal": (refusing, raise_the_limit),
    "An answer that never came": (silent, lambda: None),
    "An order that cannot be completed": (refusing, lambda: None),
    "Many at once": (refusing, raise_the_limit),
}
COMMAND = re.compile(r"^\$ manage\.py (.*)\n((?:(?!\$ ).*\n)*)", re.M)


def commands_of(section: str) -> list[tuple[list[str], list[str]]]:
    """The commands of a section of the page about errors, each with the lines that it prints."""
    [text] = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", (DOCS / "errors.md").read_text(), re.M | re.S)
    blocks = re.findall(r"^```console\n(.*?)^```$", text, re.M | re.S)
    return [(shlex.split(line), shown.splitlines()) for block in blocks for line, shown in COMMAND.findall(block)]


GAP = "..."


def prints(line: str, shown: str) -> bool:
    """Whether this printed line has the words of the shown one, in order. The page leaves out columns."""
    words = iter(line.split())
    return all(word in words for word in shown.split())


def differs(printed: list[str], shown: list[str]) -> str:
    """The first shown line that is not printed where the page shows it, or a printed one that it leaves out without a GAP."""
    place = 0
    for number, line in enumerate(shown):
        if line == GAP:
            continue
        gap = number > 0 and shown[number - 1] == GAP
        found = next((at for at in range(place, len(printed)) if prints(printed[at], line)), None)
        if found is None:
            return line
        if found > place and not gap:
            return printed[place]
        place = found + 1
    return printed[place] if place < len(printed) and (not shown or shown[-1] != GAP) else ""


@pytest.mark.parametrize("section", OPERATED)
def test_the_commands_of_the_page_about_errors_print_what_it_shows(transactional_db, sas, load, monkeypatch, section):
    monkeypatch.setattr(directory, "_used", [directory.Directory()])
    load("agents.md")
    begin, repair = OPERATED[section]
    run = begin(sas)
    for words, shown in commands_of(section):
        if words[0] == "resubmit":
            repair()
        out = StringIO()
        call_command(*[word if word != "ID" else run.key for word in words], stdout=out)
        printed = [line for line in out.getvalue().replace(run.key, "ID").splitlines() if line]
        assert differs(printed, shown) == "", printed
        sas.run()


def test_the_page_about_errors_says_that_its_listings_are_shortened():
    text = " ".join((DOCS / "errors.md").read_text().split("## ")[0].split())
    assert "Listings are shortened" in text
    assert f"`{GAP}`" in text


@pytest.mark.parametrize(
    ("shown", "found"), [(["a", "c"], "b 2"), (["a", "b"], "c 3"), (["a", GAP], ""), ([GAP, "c"], ""), (["a", GAP, "c"], ""), (["x"], "x")]
)
def test_a_line_that_a_listing_leaves_out_in_silence_is_found(shown, found):
    assert differs(["a 1", "b 2", "c 3"], shown) == found


def test_every_section_of_the_page_about_errors_that_has_commands_is_run():
    sections = re.findall(r"^## (.*)$", (DOCS / "errors.md").read_text(), re.M)
    assert {section for section in sections if commands_of(section)} == set(OPERATED)
