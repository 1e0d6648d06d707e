"""Gives the workflow of a submission the shop's as its default, for rows that other programs insert into the database."""

from __future__ import annotations

from django.db import migrations

COLUMN = "ALTER TABLE supervision_submission ALTER COLUMN workflow"


class Migration(migrations.Migration):
    """Follows the migration with which the engine drops the default it had; changes the catalogue only."""

    dependencies = [("orders", "0001_squashed_0004_incidents"), ("supervision", "0002_no_default_workflow")]
    operations = [migrations.RunSQL(f"{COLUMN} SET DEFAULT 'fulfil-order'", f"{COLUMN} DROP DEFAULT")]
