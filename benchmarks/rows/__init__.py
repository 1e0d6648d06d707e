"""The rows of the benchmark."""

from __future__ import annotations

from benchmarks.plan import Row
from benchmarks.rows import api, backlog, floor, loops, recovery, store

ROWS: dict[str, Row] = {row.name: row for row in (floor.ROW, *loops.ROWS, backlog.ROW, *store.ROWS, api.ROW, recovery.ROW)}

__all__ = ["ROWS"]
