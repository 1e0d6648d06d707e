"""The arguments and results of the functions in `step_verbs` and `claiming`: submissions taken, steps started, cohorts handed over."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from supervision.states import Claim

NOTHING: Mapping[str, Any] = MappingProxyType({})
MOST_RESULT_BYTES = 65_536  # a step's result is read with its run, by later steps and by people


class UnfitResult(Exception):
    """What an agent returned cannot be kept as the step's result. Its text says what it is; it quotes no value."""


def _refuse(value: Any) -> Any:
    raise UnfitResult(f"a dict that holds a value of the type {type(value).__name__}")


encode = json.JSONEncoder(allow_nan=False, default=_refuse).encode  # of a step's result


def checked(result: Any) -> dict[str, Any]:
    """What an agent returned, as a dict: None counts as an empty one. Raises UnfitResult for anything else."""
    if isinstance(result, dict):
        return result
    if result is None:
        return {}
    raise UnfitResult(f"a value of the type {type(result).__name__}")


@dataclass(frozen=True)
class LockedSubmission:
    """A waiting submission, locked until the transaction ends.

    mark: the 32-bit number of the transaction that locked it last, 0 if none did. suspected: see `suspicion`. before_epoch:
    it was accepted before the current epoch, so its order may have been under way.
    """

    id: int
    public_id: str
    workflow: str
    payload: str
    client: str
    created_at: Any
    cancel_requested_at: Any
    cancelled_by: str
    cancel_reason: str
    suspected: bool
    mark: int
    before_epoch: bool


class Started(NamedTuple):
    """A step whose attempt has begun. This process holds its claim until the deadline.

    deadline: a `time.monotonic()` value, counted from before the statement was sent, so that the time counts in which
    a process was frozen between START and its call.
    """

    claim: Claim
    generation: int
    idempotency_key: str
    checkpoint: Mapping[str, Any]
    key: str
    payload: Mapping[str, Any]
    perform_key: str | None = None
    performed: Mapping[str, Any] | None = None
    performed_checkpoint: Mapping[str, Any] = NOTHING
    deadline: float = 0.0
    awaits: str | None = None  # the signal that it has waited for; empty: a moment
    wait_left: float | None = None  # seconds until the end of its wait; None if it has not waited

    @property
    def run_id(self) -> int:
        """Its run."""
        return self.claim.run_id

    @property
    def attempt(self) -> int:
        """The fencing token in every write about this step."""
        return self.claim.attempt

    def followed_by(self, attempt: int, generation: int, key: str, checkpoint: Mapping[str, Any] | None, deadline: float) -> Started:
        """The next step of the same run, which this process has claimed with the end of this one."""
        claim = Claim(self.claim.run_id, attempt)
        return Started(claim, generation, key, checkpoint or NOTHING, self.key, self.payload, deadline=deadline)


@dataclass(frozen=True)
class Handover:
    """The result of finishing a cohort: the claims of the next steps (started if asked for), and the claims that were stale."""

    claims: list[Claim]
    started: list[Started]
    stale: list[Claim]
    wake_scheduler: bool = False


def together(parts: Sequence[Handover]) -> Handover:
    """The results of several parts of a cohort as one."""
    return Handover(
        [claim for part in parts for claim in part.claims],
        [item for part in parts for item in part.started],
        [claim for part in parts for claim in part.stale],
        any(part.wake_scheduler for part in parts),
    )


Done = tuple[Started, Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Start:
    """How a new run begins. born: its first step is inserted claimed by this process. blocked: it waits for its session.

    put_off: the seconds by which its turn is put off in favour of other clients. notify: its client wants status messages.
    """

    born: bool = False
    blocked: bool = False
    put_off: float = 0.0
    notify: bool = False


@dataclass(frozen=True)
class Gate:
    """Whether claims of a step are paused, the public ids of the orders that are, and whether older steps wait."""

    paused: bool
    orders: set[str]
    others_wait: bool
