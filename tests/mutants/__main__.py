"""`./run mutants`: break each requirement on purpose and check that its test fails.

The command applies each mutation to a copy of the tree and runs the requirement's test there. Exit code 0: every mutation
was caught. 1: the table names mutations that survived, mutations whose text the product no longer has, and mutations whose
test proves nothing, because it is skipped or also fails without the mutation. 2: the arguments are invalid.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from types import FrameType

from supervision.embedded.binaries import EmbeddedPostgresError
from tests.mutants import page, runner, tables
from tests.mutants.mutation import ROOT

REPORTS = ROOT / "var" / "mutants"


def main(arguments: list[str] | None = None) -> int:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(prog="./run mutants", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", metavar="ROW", help="a requirement, such as S10 (all of them)")
    parser.add_argument("--jobs", type=_positive, default=2, help="how many tests run at once (2)")
    parser.add_argument("--list", action="store_true", help="name the mutations and run nothing")
    parser.add_argument("--write", action="store_true", help="write the mutations into docs/requirements.md and run nothing")
    given = parser.parse_args(arguments)
    try:
        mutations = tables.chosen(given.rows)
    except ValueError as problem:
        parser.error(str(problem))
    if given.write:
        page.PAGE.write_text(page.with_mutations(page.PAGE.read_text(), tables.MUTATIONS))
        return 0
    if given.list:
        for mutation in mutations:
            print(f"{mutation.row:<4} {mutation.file}: {mutation.bug} ({mutation.caught_by})")
        return 0
    signal.signal(signal.SIGTERM, _leave)
    began = time.monotonic()
    try:
        results = runner.run(mutations, jobs=given.jobs, told=_tell)
    except EmbeddedPostgresError as problem:
        print(f"run: no database for the mutants: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(runner.summary(results, began))
    return 0 if all(result.verdict is runner.Verdict.CAUGHT for result in results) else 1


def _tell(result: runner.Result) -> None:
    """Print the result and keep pytest's output."""
    print(runner.line(result), flush=True)
    REPORTS.mkdir(parents=True, exist_ok=True)
    (REPORTS / f"{result.mutation.row}-{result.mutation.caught_by}.log").write_text(f"{runner.line(result)}\n\n{result.output}")


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
