"""Steps that run side by side: `plan` turns nested branches into one sequence of steps, each with the steps that it comes after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from supervision.errors import DefinitionError
from supervision.workflow import Step


@dataclass(frozen=True)
class Parallel:
    """Branches that run side by side. What comes after them begins when all of them are done."""

    branches: tuple[Branch, ...]


Branch = Step | Parallel | Sequence["Step | Parallel"]


def parallel(*branches: Branch) -> Parallel:
    """Branches of a `plan` that run side by side: each is a step, or a list of steps and further branches in their order."""
    return Parallel(branches)


def plan(*parts: Branch) -> tuple[Step, ...]:
    """The steps of a workflow: the parts follow one another, and the branches of a `parallel` run side by side.

    A step with an `after` of its own keeps it. Raises DefinitionError for a part that is no step.
    """
    steps, _ends = _in_order(parts, ())
    return tuple(steps)


def _in_order(parts: Sequence[Branch], after: tuple[str, ...]) -> tuple[list[Step], tuple[str, ...]]:
    """The steps of these parts, and the names of those with which they end. after: what the first part comes after."""
    steps: list[Step] = []
    for part in parts:
        more, after = _steps_of(part, after)
        steps += more
    return steps, after


def _steps_of(part: Branch, after: tuple[str, ...]) -> tuple[list[Step], tuple[str, ...]]:
    if isinstance(part, Step):
        return [part if part.after is not None else replace(part, after=after)], (part.name,)
    if isinstance(part, Parallel):
        found = [_steps_of(branch, after) for branch in part.branches]
        ends = tuple(name for _, names in found for name in names)
        return [step for steps, _ in found for step in steps], tuple(dict.fromkeys(ends)) or after
    if isinstance(part, str) or not isinstance(part, Sequence):
        raise DefinitionError(f"a plan consists of steps, lists of steps and parallel(...), got {part!r}")
    return _in_order(part, after)
