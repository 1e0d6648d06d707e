"""Writes a run's results into `docs/performance.md`, between its two marks, and draws `docs/performance.svg`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import fill

from benchmarks.plot import draw
from benchmarks.results import Results, joined, sources
from benchmarks.tables import as_markdown, tables

DOCS = Path(__file__).resolve().parent.parent / "docs"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


def _what(run: Results, rows: Sequence[str]) -> str:
    """When this run was, how often it measured, and which rows come from it if not all do."""
    passes = max((each["pass"] for each in run.samples), default=0) + 1
    often = "one pass" if passes == 1 else f"medians of {passes} passes (smallest - largest)"
    return _folded(f"`./run bench {run.profile}`, {run.when}; {often}{': ' + ', '.join(rows) if rows else ''}.")


def section(runs: Sequence[Results]) -> str:
    """The section of the document that comes from these runs."""
    results, source = joined(runs), sources(runs)
    rows = [[row for row, number in source.items() if number == own and len(runs) > 1] for own in range(len(runs))]
    what = "\n\n".join(map(_what, runs, rows))
    facts = as_markdown([["", ""], *([name, value] for name, value in results.facts.items())])
    parts = [what, facts, "![orders a second, latency and CPU per order, drawn from the tables below](performance.svg)"]
    parts += [f"### {title}\n\n{as_markdown(rows)}" for title, rows in tables(results)]
    left_out = [f"- {name}: {why}" for name, why in results.skipped.items()] + [f"- {problem}" for problem in results.errors()]
    if left_out:
        parts.append("### Not measured, or not as expected\n\n" + "\n".join(_folded(line) for line in left_out))
    return "\n\n".join(parts)


def _folded(line: str) -> str:
    """The line, broken into lines that fit a document."""
    return fill(line, 125, subsequent_indent=" ", break_long_words=False, break_on_hyphens=False)


def write(runs: Sequence[Results], docs: Path = DOCS) -> None:
    """Replace the section that the last report wrote."""
    path = docs / "performance.md"
    text = path.read_text()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{path} lacks its marks: {BEGIN} and {END}")
    path.write_text(f"{before}{BEGIN}\n\n{section(runs)}\n\n{END}{after}")
    (docs / "performance.svg").write_text(draw(joined(runs)))
