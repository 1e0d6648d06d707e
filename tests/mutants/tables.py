"""All mutations, in the order of the requirements."""

from __future__ import annotations

from collections.abc import Iterable

from tests.mutants import consuming, governing, open_questions, recording, scheduling, supervising
from tests.mutants.mutation import Mutation

MUTATIONS: tuple[Mutation, ...] = tuple(
    Mutation(*line) for module in (scheduling, supervising, recording, consuming, governing, open_questions) for line in module.TABLE
)
# These few run in every run of the tests.
SAMPLE = ("S10", "C13", "R18", "X1")


def chosen(rows: Iterable[str]) -> list[Mutation]:
    """The mutations of these rows; all mutations if no row is named. Raises ValueError for a row without mutations."""
    wanted = [row.upper() for row in rows]
    if unknown := sorted(set(wanted) - {mutation.row for mutation in MUTATIONS}):
        raise ValueError(f"no mutation is known for {', '.join(unknown)}")
    return [mutation for mutation in MUTATIONS if not wanted or mutation.row in wanted]


def sampled(mutations: list[Mutation], number: int) -> list[Mutation]:
    """This many of them, spread evenly; always the same ones."""
    if number >= len(mutations):
        return mutations
    return [mutations[index * len(mutations) // number] for index in range(number)]
