"""Heartbeats: an agent in long work says that it goes on. Its claim and its slot at the service are extended in one commit."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from supervision.governance import admission
from supervision.states import Claim
from supervision.store.runs import attempts
from supervision.workflow import StepPosition

SHARE = 0.1  # of the step's budget: a heartbeat that comes sooner after the one before is not written

Address = tuple[int, str, int, int]  # run, direction, position, attempt


class Extension(NamedTuple):
    """An attempt whose claim stands. deadline: a `time.monotonic()` value. wanted: its order is not being undone."""

    deadline: float
    wanted: bool
    slot_lost: bool


def extend(calls: Sequence[tuple[StepPosition, Claim]]) -> Mapping[Address, Extension]:
    """Extend these calls, in the caller's transaction. A call whose claim no longer stands is missing in the result.

    A slot is extended as long as its claim, so that its service never has more calls under way than it takes.
    """
    began = time.monotonic()  # before the statement, so that a process that was frozen meanwhile counts that time
    rows = attempts.extend(calls)
    lost = admission.keep({(row[0], row[1], row[2], row[3]): row[4] for row in rows})
    return {
        address: Extension(began + remaining, wanted, address in lost)
        for *place, remaining, wanted in rows
        for address in [(place[0], place[1], place[2], place[3])]
    }
