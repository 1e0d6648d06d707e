"""The state store's invariants as queries: they verify on the rows what constraints and guards promise.

Each check is one read-only statement, so it reads one snapshot. The engine commits every transition whole, so a check
on a running system sees no half-made one. All checks are set-based: they run no query per row.
Checks are in modules named `audit_checks`, in the engine and in any app, and are found by that name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.db import connection
from django.utils.module_loading import autodiscover_modules

MOST_PER_CHECK = 20


@dataclass(frozen=True)
class Violation:
    """One broken invariant, by name, with the row that breaks it."""

    invariant: str
    detail: str


@dataclass(frozen=True)
class Check:
    """An invariant in words, and the SELECT that finds its violations (none where it holds).

    params: returns the statement's parameters when the check runs. find: instead of a statement, a function that yields
    each violation in words; all of them are reported.
    """

    invariant: str
    violations: str = ""
    params: Callable[[], Mapping[str, Any]] = dict
    find: Callable[[], Iterable[str]] | None = None


_checks: dict[str, Check] = {}


def register(check: Check) -> Check:
    """Register a check. A later one of the same name replaces it."""
    _checks[check.invariant] = check
    return check


def checks() -> list[Check]:
    """Every check, those of other apps included, in the order of their registration."""
    autodiscover_modules("audit_checks")
    return list(_checks.values())


def violations() -> Iterator[Violation]:
    """Every broken invariant: at most `MOST_PER_CHECK` rows of each statement, and a note if there are more."""
    for check in checks():
        yield from violations_of(check)


def violations_of(check: Check) -> Iterator[Violation]:
    """The rows that break one invariant, as `column=value` pairs."""
    if check.find is not None:
        yield from (Violation(check.invariant, detail) for detail in check.find())
        return
    limit = MOST_PER_CHECK + 1
    statement = f"SELECT * FROM ({check.violations}) AS violation LIMIT {limit}"  # noqa: S608 - our own text
    with connection.cursor() as cursor:
        cursor.execute(statement, dict(check.params()))
        columns = [column.name for column in cursor.description]
        rows = cursor.fetchall()
    for row in rows[:MOST_PER_CHECK]:
        facts = (f"{name}={value}" for name, value in zip(columns, row, strict=True))
        yield Violation(check.invariant, ", ".join(facts))
    if len(rows) > MOST_PER_CHECK:
        yield Violation(check.invariant, f"and more than {MOST_PER_CHECK} in all")
