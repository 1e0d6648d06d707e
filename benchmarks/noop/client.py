"""The load of our engine: submits orders through its public function, one per commit (or `bulk` per commit)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence

import django

django.setup()

from benchmarks.noop.workflows import BRANCHES, HEARD, HEARD_NOOP, NOOP  # noqa: E402 - needs the applications
from supervision.intake import submission  # noqa: E402

heard = os.environ.get("BENCH_HEARD") == "1"
heard_workflow = BRANCHES if os.environ.get("BENCH_BRANCHES") == "1" else HEARD_NOOP


def order(began: float) -> submission.NewSubmission:
    """An order of normal size."""
    facts = {
        "began": began,
        "email": "ada@example.com",
        "lines": [{"sku": "A1", "quantity": 1}, {"sku": "B2", "quantity": 2}],
    }
    if heard:
        facts[HEARD] = True
    return submission.NewSubmission(
        public_id=submission.new_public_id(),
        payload=json.dumps(facts),
        workflow=heard_workflow.name if heard else NOOP.name,
        session_key=None,
    )


def connect() -> Callable[[Sequence[float]], None]:
    """A function that submits orders, with one commit for each call."""

    def submit(begins: Sequence[float]) -> None:
        submission.accept([order(began) for began in begins])

    return submit
