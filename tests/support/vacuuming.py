"""VACUUM for tests that count pages: rows that earlier tests have deleted are gone from the tables and the indexes after it."""

from __future__ import annotations

from django.db import connection

from chaos.look import until

_HOLDERS = """
SELECT count(*) FROM pg_stat_activity
 WHERE datname = current_database() AND pid <> pg_backend_pid() AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
"""


def vacuum(*tables: str) -> None:
    """Vacuum and analyse these tables once no other session, autovacuum's included, holds a snapshot that keeps dead rows."""
    until(_no_snapshot_is_held, what="the end of every other transaction in this database")
    with connection.cursor() as cursor:
        cursor.execute(f"VACUUM (ANALYZE, INDEX_CLEANUP ON) {', '.join(tables)}")


def _no_snapshot_is_held() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(_HOLDERS)
        return bool(cursor.fetchone()[0] == 0)
