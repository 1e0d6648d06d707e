"""A shop of forked workers, for tests that need several processes."""

from __future__ import annotations

from tests.hazards.conftest import lane

__all__ = ["lane"]
