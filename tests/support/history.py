"""Changes the append-only tables, as only a superuser can, for tests that need an older or a broken history."""

from __future__ import annotations

from typing import Any

from django.db import connection, transaction


def rewrite(statement: str, params: Any = None) -> None:
    """Run this statement without triggers."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute(statement, params)
        cursor.execute("SET LOCAL session_replication_role = origin")
