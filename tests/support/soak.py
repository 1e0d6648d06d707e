"""Sizes of the tests that grow more convincing the longer they run: short in the suite, long in `./run chaos soak`."""

from __future__ import annotations

import os


def sized(suite: int, soak: int) -> int:
    """`suite`, or `soak` where SOAK is set, as `./run chaos soak` does."""
    return soak if os.environ.get("SOAK") else suite
