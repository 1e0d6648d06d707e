"""The journal's table is vacuumed by rows rather than by share: every entry is updated once, and waiting ones are found first."""

from __future__ import annotations

from django.db import migrations

STORAGE = """
ALTER TABLE supervision_journalentry SET (autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_insert_scale_factor = 0.1, autovacuum_analyze_scale_factor = 0.05);
"""
STORAGE_BACK = """
ALTER TABLE supervision_journalentry RESET (autovacuum_vacuum_scale_factor,
    autovacuum_vacuum_insert_scale_factor, autovacuum_analyze_scale_factor);
"""


class Migration(migrations.Migration):
    """Storage parameters."""

    dependencies = [("supervision", "0006_status_messages")]

    operations = [migrations.RunSQL(STORAGE, STORAGE_BACK)]
