"""The rows of FINISH where the plan branches: what became of the runs, and which steps come next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from supervision.states import RunState
from supervision.store.records import Started
from supervision.workflow import StepPosition

_TAKEN, _DUE = "taken", "due"  # how FINISH leaves a step that waits for nothing else: claimed by this process, or for a scheduler


class Finished(NamedTuple):
    """What FINISH did. found: the runs whose claims stood. ended: those that are Processed, each with its session.

    undone: those that are being undone. started: the next steps that this process has claimed. due: whether others are due.
    """

    found: set[int]
    ended: dict[int, str | None]
    undone: set[int]
    started: list[Started]
    due: bool


def read(rows: Sequence[tuple[Any, ...]], items: Mapping[int, Started], began: float) -> Finished:
    """Evaluate the rows. items: the finished steps by run. began: a `time.monotonic()` value from before the statement."""
    runs = [row for row in rows if row[1] not in (_TAKEN, _DUE)]
    return Finished(
        found={row[0] for row in runs},
        ended={run_id: session for run_id, state, session, *_ in runs if state == RunState.PROCESSED},
        undone={run_id for run_id, state, *_ in runs if state == RunState.COMPENSATING},
        started=[
            items[run_id].followed_by(attempt, generation, key, checkpoint, began + remaining)
            for run_id, what, _, attempt, generation, key, checkpoint, remaining in rows
            if what == _TAKEN
        ],
        due=any(row[1] == _DUE for row in rows),
    )


def nothing_follows(place: StepPosition) -> dict[str, Any]:
    """The parameters of FINISH at the end of a branch: it claims no step."""
    return {"next": -1, "fuse": False, "wait": True, "lease": 0.0, "step": "", "agent": "", "workflow": place.workflow}
