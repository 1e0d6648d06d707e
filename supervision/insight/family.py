"""A run's parent and children, for pages and commands: bounded lists, and counts for the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from supervision.postgres import db

MOST_SHOWN = 50

_PARENT = """
SELECT c.parent_key, c.step, r.id FROM supervision_child c LEFT JOIN supervision_run r ON r.key = c.parent_key WHERE c.key = %(key)s
"""
_COUNTS = """
SELECT c.step, coalesce(r.process_state, c.state), count(*) FROM supervision_child c LEFT JOIN supervision_run r ON r.key = c.key
 WHERE c.parent_key = %(key)s GROUP BY 1, 2 ORDER BY 1, 2
"""
# Those in Error first, then those that are under way.
_SHOWN = """
SELECT c.key, c.step, coalesce(r.process_state, c.state), r.id
  FROM supervision_child c LEFT JOIN supervision_run r ON r.key = c.key
 WHERE c.parent_key = %(key)s
 ORDER BY r.process_state = 'Error' DESC NULLS LAST, c.state IN ('Started', 'Undoing') DESC, c.step, c.number, c.generation
 LIMIT %(most)s
"""


@dataclass(frozen=True)
class Relative:
    """A parent or a child. step: the parent's. state: its run's, or the child's own before there is a run. run_id: likewise None."""

    key: str
    step: str
    state: str
    run_id: int | None


@dataclass(frozen=True)
class Family:
    """A run's relatives. counts: by the parent's step, how many children are in each state. children: at most 50 of them."""

    parent: Relative | None
    counts: Mapping[str, Mapping[str, int]]
    children: Sequence[Relative]

    @property
    def hidden(self) -> int:
        """How many children are counted but not listed."""
        return sum(sum(states.values()) for states in self.counts.values()) - len(self.children)

    @property
    def summary(self) -> list[tuple[str, str]]:
        """Each step that has children, with their states in words, such as "3 Processed, 1 Error"."""
        return [(step, ", ".join(f"{count} {state}" for state, count in states.items())) for step, states in self.counts.items()]

    @property
    def answer(self) -> dict[str, Any]:
        """The same as JSON values."""
        return {
            "parent": self.parent and {"id": self.parent.key, "step": self.parent.step},
            "children": [{"id": each.key, "step": each.step, "process_state": each.state} for each in self.children],
            "children_by_state": {step: dict(states) for step, states in self.counts.items()},
        }


def of(key: str) -> Family:
    """The relatives of the run with this key; none for an ordinary run."""
    above = db.fetch(_PARENT, {"key": key})
    counts: dict[str, dict[str, int]] = {}
    for step, state, count in db.fetch(_COUNTS, {"key": key}):
        counts.setdefault(step, {})[state] = count
    shown = [Relative(*row) for row in db.fetch(_SHOWN, {"key": key, "most": MOST_SHOWN})] if counts else []
    return Family(next((Relative(parent, step, "", run_id) for parent, step, run_id in above), None), counts, shown)
