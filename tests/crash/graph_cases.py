"""The crash matrix of branches, waits and children as data: every failpoint of an order's way x every step x each of its attempts.

A second part has the orders that change on their way (`graphs.CHANGED`): they are moved to a newer version, and go back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

# How often a process gets to these points with each step: a step that waits is begun, sleeps, and is begun again.
BEGUN = {"ask": 1, "paid": 2, "capture": 2, "rest": 2, "tell": 1, "one": 2, "each": 2, "pack": 1, "close": 1}
DONE = BEGUN | {"capture": 1}  # its first call hands the work over
CLAIMED = DONE | {"paid": 1}  # first it is handed over by the step before it
UNDONE = {"undo:ask": 1, "undo:capture": 1, "undo:tell": 1, "undo:one": 2, "undo:each": 2, "undo:pack": 1}
ONCE = dict.fromkeys((*BEGUN, *UNDONE), 1)

POINTS = {
    "submit.before_commit": {"": 3},  # the orders, their first children, the last ones
    "submit.after_commit": {"": 3},
    "scheduler.after_claim": CLAIMED | UNDONE,
    "scheduler.mid_dispatch": CLAIMED | UNDONE,
    "agent.after_start": BEGUN | UNDONE,
    "agent.before_call": BEGUN | UNDONE,
    "agent.after_effect": DONE,
    "undo.after_effect": UNDONE,
    "agent.after_finish": DONE | UNDONE,
    "supervisor.before_commit": ONCE,
    "supervisor.after_commit": ONCE,
}

# The orders that change. Each step but the undo ones is done twice: before and after the order goes back. A process that dies with
# `join` leaves an effect that is not known, and such an order is not let go back.
TWICE = {"cut": 2, "paid": 4, "drill": 2, "one": 4}
TURNED = {"undo:drill": 1, "undo:one": 2, "undo:cut": 1}

CHANGED_POINTS = {
    "verb.before_commit": {"": 4},  # two orders are moved, and the same two go back
    "verb.after_commit": {"": 4},
    "scheduler.after_claim": {"drill": 2, "one": 4} | TURNED,
    "scheduler.mid_dispatch": {"drill": 2, "one": 4} | TURNED,
    "agent.after_start": TWICE | TURNED,
    "agent.before_call": TWICE | TURNED,
    "agent.after_effect": TWICE,
    "undo.after_effect": TURNED,
    "agent.after_finish": TWICE | TURNED,
    "supervisor.before_commit": dict.fromkeys(("drill", *TURNED), 1),
    "supervisor.after_commit": dict.fromkeys(("drill", *TURNED), 1),
}

# One case for each failpoint; every run of the tests includes these.
SLICE = {
    ("submit.after_commit", "", 2),
    ("submit.before_commit", "", 3),
    ("scheduler.after_claim", "paid", 1),
    ("scheduler.mid_dispatch", "undo:each", 2),
    ("agent.after_start", "each", 2),
    ("agent.before_call", "one", 2),
    ("agent.after_effect", "each", 1),
    ("agent.after_finish", "rest", 2),
    ("undo.after_effect", "undo:one", 1),
    ("supervisor.before_commit", "paid", 1),
    ("supervisor.after_commit", "undo:one", 1),
}
CHANGED_SLICE = {("verb.before_commit", "", 4), ("verb.after_commit", "", 2), ("agent.after_finish", "undo:cut", 1)}


@dataclass(frozen=True)
class GraphCase:
    """The process to kill: at which failpoint, at which step, at which time that it gets there.

    changed: the orders are moved to a newer version and go back to their first step.
    """

    point: str
    step: str
    time: int
    changed: bool = False

    @property
    def undoing(self) -> bool:
        """Whether the step is an undo step, so that the orders have to be undone."""
        return self.step.startswith("undo:") and not self.changed

    @property
    def fails(self) -> str | None:
        """The step whose first call fails, because a scheduler claims it only then."""
        return self.step if self.point.startswith("scheduler.") else None

    @property
    def expires(self) -> bool:
        """Whether the supervisor finds the step expired: another process has died with it before."""
        return self.point.startswith("supervisor.")

    @property
    def in_slice(self) -> bool:
        """Whether every run of the tests includes this case."""
        return (self.point, self.step, self.time) in (CHANGED_SLICE if self.changed else SLICE)

    def __str__(self) -> str:
        return "-".join(filter(None, (self.point, self.step, str(self.time), "changed" if self.changed else "")))


def cases() -> Iterator[GraphCase]:
    """The whole matrix."""
    for changed, points in ((False, POINTS), (True, CHANGED_POINTS)):
        for point, steps in points.items():
            for step, times in steps.items():
                yield from (GraphCase(point, step, time, changed) for time in range(1, times + 1))
