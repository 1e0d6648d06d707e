"""Makes waiting orders: `python -m benchmarks.noop.backlog COUNT` writes Pending runs with the engine's own functions."""

from __future__ import annotations

import sys
import time

import django

django.setup()

from benchmarks.noop.client import order  # noqa: E402 - needs the applications
from supervision.intake import consuming, submission  # noqa: E402
from supervision.wakeup import hints  # noqa: E402

PORTION = 1000


def write(count: int) -> None:
    """Write so many runs whose first step is due, and that no worker has claimed."""
    hints.enabled = False
    for first in range(0, count, PORTION):
        now = time.monotonic()
        submission.accept([order(now) for _ in range(min(PORTION, count - first))])
        consuming.consume_batch(PORTION, born=False)


if __name__ == "__main__":
    write(int(sys.argv[1]))
