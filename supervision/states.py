"""The states of a run and of a step, and the actors that change them. This is the only copy.

`docs/state-machine.md` is drawn from these tables, the database's constraints are derived from these enums, and
`tests/test_architecture.py` compares both with them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class RunState(StrEnum):
    """The state of one order's workflow instance."""

    PENDING = "Pending"
    PROCESSING = "Processing"
    PROCESSED = "Processed"
    ERROR = "Error"
    COMPENSATING = "Compensating"
    CANCELLED = "Cancelled"


class ProcessState(StrEnum):
    """The state of one step of a run, in the pattern's own terms."""

    PENDING = "Pending"
    PROCESSING = "Processing"
    PROCESSED = "Processed"
    ERROR = "Error"
    SKIPPED = "Skipped"
    CANCELLED = "Cancelled"


class Direction(StrEnum):
    """Whether a step does its work or undoes it. An undo is an ordinary step with a row of its own."""

    DO = "do"
    UNDO = "undo"


ATTEMPTS_PER_EPOCH = 10_000  # how far attempts jump where a new epoch begins (see `epochs`)


class Effect(StrEnum):
    """What is known of a step's effect on the outside world."""

    NONE = "none"
    UNKNOWN = "unknown"
    DONE = "done"


# The only resource that may take step `s`, or null: its effect there is unknown or done, or what it undoes was done there.
BOUND_TO = """CASE s.direction WHEN 'do' THEN CASE WHEN s.effect <> 'none' THEN s.resource END ELSE (
            SELECT CASE WHEN d.effect <> 'none' OR s.effect <> 'none' THEN coalesce(s.resource, d.resource) END
              FROM supervision_stepstate d WHERE d.run_id = s.run_id AND d.direction = 'do' AND d.position = s.position) END"""

# Whether only the resource of the service's own name may take step `s`, because it was sent there while that was the only one: then no
# row names it. A new epoch makes effects unknown, too: of steps that may have been sent elsewhere in the lost time.
SENT_HOME = f"""coalesce(CASE s.direction WHEN 'do' THEN s.effect <> 'none' AND s.resource IS NULL AND s.attempt < {ATTEMPTS_PER_EPOCH}
       ELSE (SELECT coalesce(s.resource, d.resource) IS NULL AND (d.effect = 'done' OR (
                    (d.effect <> 'none' OR s.effect <> 'none') AND d.attempt < {ATTEMPTS_PER_EPOCH}))
               FROM supervision_stepstate d WHERE d.run_id = s.run_id AND d.direction = 'do' AND d.position = s.position) END, false)"""  # noqa: S608


class Move(NamedTuple):
    """One allowed transition: `mover` is the actor that makes it, `why` the reason."""

    source: str | None
    target: str
    mover: str
    why: str


RUN_MOVES: tuple[Move, ...] = (
    Move(None, RunState.PENDING, "submission", "the submission is consumed"),
    Move(RunState.PENDING, RunState.PROCESSING, "scheduler", "the first step is claimed"),
    Move(RunState.PENDING, RunState.CANCELLED, "customer or operator", "cancelled before anything ran"),
    Move(RunState.PROCESSING, RunState.PROCESSED, "agent", "the last step is done"),
    Move(RunState.PROCESSING, RunState.ERROR, "agent or supervisor", "a step cannot go on"),
    Move(RunState.PROCESSING, RunState.COMPENSATING, "policy, customer or operator", "undo what was done"),
    Move(RunState.PROCESSING, RunState.CANCELLED, "policy, customer or operator", "nothing to undo"),
    Move(RunState.ERROR, RunState.PROCESSING, "operator", "resubmit, skip or complete the failed step"),
    Move(RunState.ERROR, RunState.PROCESSED, "operator", "the skipped or completed step was the last"),
    Move(RunState.ERROR, RunState.COMPENSATING, "operator", "undo, or resubmit a failed undo"),
    Move(RunState.ERROR, RunState.CANCELLED, "operator", "nothing is left to undo"),
    Move(RunState.PROCESSED, RunState.COMPENSATING, "agent", "a child run whose parent is undone"),
    Move(RunState.PROCESSED, RunState.CANCELLED, "agent", "likewise, with nothing to undo"),
    Move(RunState.COMPENSATING, RunState.CANCELLED, "agent or operator", "the last undo is done, or the rest is left in place"),
    Move(RunState.COMPENSATING, RunState.PROCESSING, "agent", "all that came later is undone: it goes on from an earlier step"),
    Move(RunState.COMPENSATING, RunState.ERROR, "agent or supervisor", "an undo cannot go on"),
)

STEP_MOVES: tuple[Move, ...] = (
    Move(None, ProcessState.PENDING, "submission", "written with the run"),
    Move(ProcessState.PENDING, ProcessState.PROCESSING, "scheduler", "claimed exclusively"),
    Move(ProcessState.PENDING, ProcessState.ERROR, "supervisor", "the order's own time is over"),
    Move(ProcessState.PENDING, ProcessState.SKIPPED, "operator", "not needed: its run is cancelled without undo"),
    Move(ProcessState.PENDING, ProcessState.PROCESSED, "operator", "a wait is ended by hand"),
    Move(ProcessState.PENDING, ProcessState.CANCELLED, "customer, policy or operator", "the run is undone"),
    Move(ProcessState.PROCESSING, ProcessState.PROCESSED, "agent", "done"),
    Move(ProcessState.PROCESSING, ProcessState.PENDING, "agent or supervisor", "retry, wait or postpone"),
    Move(ProcessState.PROCESSING, ProcessState.ERROR, "agent or supervisor", "refused, or attempts exhausted"),
    Move(ProcessState.PROCESSING, ProcessState.SKIPPED, "agent or supervisor", "given up by its policy"),
    Move(ProcessState.PROCESSING, ProcessState.CANCELLED, "supervisor", "expired while the run is undone"),
    Move(ProcessState.ERROR, ProcessState.PENDING, "operator", "resubmit"),
    Move(ProcessState.ERROR, ProcessState.SKIPPED, "operator", "skip"),
    Move(ProcessState.ERROR, ProcessState.PROCESSED, "operator", "done by hand"),
    Move(ProcessState.PROCESSED, ProcessState.PENDING, "agent", "undone, and written anew: the run goes on from an earlier step"),
    Move(ProcessState.SKIPPED, ProcessState.PENDING, "agent", "written anew: the run goes on from an earlier step"),
)

FINAL_RUN_STATES = frozenset({RunState.PROCESSED, RunState.CANCELLED})
FINAL_STEP_STATES = frozenset({ProcessState.PROCESSED, ProcessState.SKIPPED, ProcessState.CANCELLED})


class Claim(NamedTuple):
    """The exclusive right to one attempt of one step: what a message carries, with the step's place beside it."""

    run_id: int
    attempt: int
