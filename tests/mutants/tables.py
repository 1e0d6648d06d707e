"""All mutations, in the order of the requirements. They are read from the text files beside this module.

In a file, an empty line ends a mutation. Its first line has the requirement and the bug, the second the changed file and the
test. Lines with `-` are the text to replace, which may begin and end in the middle of a line; those with `+` replace it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.mutants.mutation import Mutation

FILES = ("scheduling", "supervising", "recording", "consuming", "governing", "open_questions", "workflows", "shop", "trust")


def read(name: str) -> Iterator[Mutation]:
    """The mutations of one file, whose first lines are a comment."""
    for text in Path(__file__).with_name(f"{name}.txt").read_text().rstrip().split("\n\n")[1:]:
        title, place, *changes = text.split("\n")
        row, bug = title.split(": ", 1)
        file, caught_by = place.split()
        old, new = ("\n".join(line[1:] for line in changes if line[0] == sign) for sign in "-+")
        yield Mutation(row, bug, file, old, new, caught_by)


MUTATIONS: tuple[Mutation, ...] = tuple(mutation for name in FILES for mutation in read(name))
# These few run in every run of the tests.
SAMPLE = ("S10",)


def chosen(rows: Iterable[str]) -> list[Mutation]:
    """The mutations of these rows; all mutations if no row is named. Raises ValueError for a row without mutations."""
    wanted = [row.upper() for row in rows]
    if unknown := sorted(set(wanted) - {mutation.row for mutation in MUTATIONS}):
        raise ValueError(f"no mutation is known for {', '.join(unknown)}")
    return [mutation for mutation in MUTATIONS if not wanted or mutation.row in wanted]
