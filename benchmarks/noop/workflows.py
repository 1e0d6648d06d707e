"""Four steps that do nothing, or wait for BENCH_SLEEP seconds, so that the benchmark measures the engine alone.

`noop` counts an order when its last step has been called; the benchmark checks afterwards that all orders are Processed.
`noop-heard` counts it when the commit that closed its run has returned: latency is measured until then. So do `noop-branches`,
with two branches of two steps side by side, and `noop-waiting`, with a wait for a signal between the second and the third step.
The agents that BENCH_EFFECTS names (comma separated) write a row of the effect ledger for each call.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from datetime import timedelta
from functools import partial

from django.db import transaction

from benchmarks import ledger
from supervision import (
    Agent,
    ClosedRun,
    Intention,
    Step,
    StepRequest,
    WaitForSignal,
    Workflow,
    parallel,
    plan,
    register,
    register_agent,
)

SLEEP = float(os.environ.get("BENCH_SLEEP", "0"))
NAMES = ("stock", "payment", "shipping", "email")
LAST = NAMES[-1]
WITH_EFFECTS = frozenset(filter(None, os.environ.get("BENCH_EFFECTS", "").split(",")))
HEARD = "heard"  # in the payload of orders that are counted when their runs are closed


class NoopAgent(Agent):
    """Returns a small result."""

    def __init__(self, name: str) -> None:
        self.name = name  # type: ignore[misc]

    def perform(self, request: StepRequest) -> dict[str, object]:
        """Wait for SLEEP seconds, then succeed."""
        if SLEEP:
            time.sleep(SLEEP)
        ledger.step()
        if self.name == LAST and HEARD not in request.payload:
            ledger.order(float(request.payload.get("began", 0.0)))
        return {"ok": True, "agent": self.name}

    def compensate(self, request: StepRequest) -> dict[str, object]:
        """There is nothing to undo."""
        return {}


class EffectAgent(NoopAgent):
    """The same, with one external operation: its row is committed before the call and settled after it."""

    def opens_with(self, request: StepRequest) -> Intention:
        """The effect ledger's row for the call."""
        return Intention("call", request.idempotency_key, self.name)


def count_closed(runs: Sequence[ClosedRun]) -> None:
    """Count these orders once their end is committed."""
    for run in runs:
        transaction.on_commit(partial(ledger.order, float((run.payload or {}).get("began", 0.0))))


for name in NAMES:
    register_agent((EffectAgent if name in WITH_EFFECTS else NoopAgent)(name))

STEPS = tuple(Step(f"step-{name}", agent=name, complete_within=timedelta(seconds=30)) for name in NAMES)
NOOP = register(Workflow("noop", STEPS))
HEARD_NOOP = register(Workflow("noop-heard", STEPS, on_processed=count_closed))
BRANCHES = register(Workflow("noop-branches", plan(parallel(STEPS[:2], STEPS[2:])), on_processed=count_closed))
SIGNAL = "paid"
WAITING = register(Workflow("noop-waiting", (*STEPS[:2], WaitForSignal(SIGNAL), *STEPS[2:]), on_processed=count_closed))
