"""The load of our engine: submits orders through its public function, one per commit (or `bulk` per commit).

BENCH_WORKFLOW names the workflow. To orders that wait for a signal it sends one, in a commit of its own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence

import django

django.setup()

from benchmarks.noop.workflows import HEARD, HEARD_NOOP, NOOP, SIGNAL, WAITING  # noqa: E402 - needs the applications
from supervision.intake import submission  # noqa: E402
from supervision.signals import sending  # noqa: E402

workflow = os.environ.get("BENCH_WORKFLOW") or (HEARD_NOOP if os.environ.get("BENCH_HEARD") == "1" else NOOP).name


def order(began: float) -> submission.NewSubmission:
    """An order of normal size."""
    facts = {
        "began": began,
        "email": "ada@example.com",
        "lines": [{"sku": "A1", "quantity": 1}, {"sku": "B2", "quantity": 2}],
    }
    if workflow != NOOP.name:
        facts[HEARD] = True
    return submission.NewSubmission(
        public_id=submission.new_public_id(),
        payload=json.dumps(facts),
        workflow=workflow,
        session_key=None,
    )


def connect() -> Callable[[Sequence[float]], None]:
    """A function that submits orders, with one commit for each call."""

    def submit(begins: Sequence[float]) -> None:
        orders = [order(began) for began in begins]
        submission.accept(orders)
        if workflow == WAITING.name:
            sending.send_all([sending.NewSignal(run=new.public_id, name=SIGNAL, key="one") for new in orders])

    return submit
