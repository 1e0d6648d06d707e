"""The cost of statements in pages touched, which is the same on every machine and under any load."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from django.db import transaction

from supervision.postgres import db

Statements = list[tuple[str, Mapping[str, Any] | None]]


@contextmanager
def noted() -> Iterator[Statements]:
    """The statements that the engine sends inside the block."""
    seen: Statements = []
    real = db.run, db.fetch

    def run(statement: str, params: Mapping[str, Any] | None = None, **options: Any) -> list[tuple[Any, ...]]:
        seen.append((statement, params))
        return real[0](statement, params, **options)

    db.run = db.fetch = run
    try:
        yield seen
    finally:
        db.run, db.fetch = real


def touched(work: Callable[[], object]) -> int:
    """How many pages the statements of `work` touch; `work` runs once, and its writes are rolled back."""
    with transaction.atomic():
        point = transaction.savepoint()
        with noted() as statements:
            work()
        transaction.savepoint_rollback(point)
        found = sum(of(*each) for each in statements)
        transaction.set_rollback(True)
    return found


def of(statement: str, params: Mapping[str, Any] | None) -> int:
    """How many pages this statement touches; it is executed."""
    plan = "\n".join(row[0] for row in db.fetch("EXPLAIN (ANALYZE, BUFFERS) " + statement, params))
    first = re.search(r"Buffers: (.*)", plan)
    return sum(map(int, re.findall(r"(?:hit|read)=(\d+)", first.group(1)))) if first else 0
