"""The step that every peer performs: it does nothing, or waits BENCH_SLEEP seconds like a call of a remote service."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from benchmarks import ledger

SLEEP = float(os.environ.get("BENCH_SLEEP", "0"))
STEPS = ("stock", "payment", "shipping", "email")
LAST = len(STEPS) - 1


def perform(position: int) -> dict[str, Any]:
    """Perform the step."""
    if SLEEP:
        time.sleep(SLEEP)
    ledger.step()
    return {"ok": True, "agent": STEPS[position]}


async def perform_async(position: int) -> dict[str, Any]:
    """The same on an event loop."""
    if SLEEP:
        await asyncio.sleep(SLEEP)
    ledger.step()
    return {"ok": True, "agent": STEPS[position]}


def payload(began: float) -> dict[str, Any]:
    """An order of usual size."""
    return {
        "began": began,
        "email": "ada@example.com",
        "lines": [{"sku": "A1", "quantity": 1}, {"sku": "B2", "quantity": 2}],
    }
