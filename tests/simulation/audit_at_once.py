"""The engine's audit as one prepared statement. A scenario is audited every few events: forty statements took half of its time.

The checks, their SELECTs and parameters are the audit's own; only the round trips and the planning are fewer.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from supervision.audit import registry
from supervision.postgres import db

MOST_PER_CHECK = 3


@cache
def _checks() -> list[registry.Check]:
    """The checks of the engine that are statements."""
    return [check for check in registry.checks() if "orders_" not in check.violations and not check.find]


@cache
def _statement() -> str:
    selects = (
        f"(SELECT {number} AS number, to_jsonb(violation)::text AS facts FROM ({check.violations}) AS violation LIMIT {MOST_PER_CHECK})"  # noqa: S608 - our own text
        for number, check in enumerate(_checks())
    )
    return " UNION ALL ".join(selects)


def violations() -> list[str]:
    """Every broken invariant of the engine, in words."""
    params: dict[str, Any] = {}
    for check in _checks():
        for name, value in check.params().items():
            assert params.setdefault(name, value) == value, f"two checks give {name} different values"
    return [f"{_checks()[number].invariant}: {facts}" for number, facts in db.fetch(_statement(), params)]
