"""Fixtures of the archive's tests: a store whose rows can be made older."""

from __future__ import annotations

from typing import Any

from django.db import connection

from tests.engine.conftest import engine, store_database, tuned  # noqa: F401
from tests.support.history import rewrite

TABLES = (
    "supervision_run", "supervision_stepstate", "supervision_stepevent", "supervision_strayreply", "supervision_alert",
    "supervision_submission", "supervision_notification", "supervision_delivery", "supervision_slot", "supervision_pause",
    "supervision_archivedrun", "orders_order", "orders_orderline", "orders_stockreservation",
)  # fmt: skip


MOMENTS = {
    "supervision_run": ("created_at", "finished_at", "complete_by"),
    "supervision_submission": ("created_at", "consumed_at"),
    "supervision_notification": ("created_at", "delivered_at"),
    "supervision_stepevent": ("at",),
    "supervision_alert": ("raised_at",),
}
ITS_ROWS = {"supervision_run": "key = ANY(%(keys)s)", "supervision_submission": "public_id = ANY(%(keys)s)"}
ITS_RUNS = "run_id IN (SELECT id FROM supervision_run WHERE key = ANY(%(keys)s))"


def let_pass(days: float, *keys: str) -> None:
    """Move every timestamp of these orders back by this many days."""
    for table, moments in MOMENTS.items():
        earlier = ", ".join(f"{moment} = {moment} - %(days)s::float8 * interval '1 day'" for moment in moments)
        where = ITS_ROWS.get(table, ITS_RUNS)
        rewrite(f"UPDATE {table} SET {earlier} WHERE {where}", {"days": days, "keys": list(keys)})  # noqa: S608 - the names above


def rows() -> dict[str, list[Any]]:
    """All rows of all tables that the archive may touch."""
    found = {}
    with connection.cursor() as cursor:
        for table in TABLES:
            cursor.execute(f"SELECT to_jsonb(t)::text FROM {table} t ORDER BY 1")  # noqa: S608 - the names above
            found[table] = [row[0] for row in cursor.fetchall()]
    return found
