"""Orders that wait: `python -m benchmarks.noop.backlog COUNT` writes them as Pending runs, through the engine's own verbs."""

from __future__ import annotations

import sys
import time

import django

django.setup()

from benchmarks.noop.client import order  # noqa: E402 - needs the applications
from supervision import consuming, hints, submission  # noqa: E402

PORTION = 1000


def write(count: int) -> None:
    """So many runs whose first step is due, nobody at work on them."""
    hints.enabled = False
    for first in range(0, count, PORTION):
        now = time.monotonic()
        submission.accept([order(now) for _ in range(min(PORTION, count - first))])
        consuming.consume_batch(PORTION, born=False)


if __name__ == "__main__":
    write(int(sys.argv[1]))
