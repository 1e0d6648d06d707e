"""The system check that compares this code's plans with the registered ones.

It is the only check that queries the database. Without a PostgreSQL, or without our tables in it, it reports nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.core.checks import CheckMessage, Error, register
from django.db import Error as DatabaseError
from django.db import connection

from supervision.plans import registry

TAG = "supervision"
HINT = "Raise the version in the definition, and keep the old one registered while `manage.py workflows` counts runs of it."
_off = False


@register(TAG)
def check_plans(app_configs: object, **_: Any) -> list[CheckMessage]:
    """Report the versions of workflows whose plan in this code differs from the one in the database."""
    if _off or connection.in_atomic_block or connection.vendor != "postgresql":  # another vendor is supervision.E016
        return []
    try:
        connection.ensure_connection()  # fails at once: statements of the engine would wait for an absent database
        found = registry.differences()
    except DatabaseError:
        return []
    return [Error(f"{what[0].upper()}{what[1:]}.", hint=HINT, id="supervision.E020") for what in found]


@contextmanager
def left_out() -> Iterator[None]:
    """Switch this check off, for commands that only read, and for commands that report a changed plan in a line of their own."""
    global _off
    before, _off = _off, True
    try:
        yield
    finally:
        _off = before
