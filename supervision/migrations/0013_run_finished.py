"""Adds the index of runs by the moment of their end, for the console's charts."""

from __future__ import annotations

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    """Builds the index without blocking writers."""

    atomic = False
    dependencies = [("supervision", "0012_pulse")]
    operations = [
        AddIndexConcurrently("run",
            models.Index(
                name="run_finished",
                fields=["finished_at"],
                include=["created_at", "process_state", "parent_key"],
                condition=Q(finished_at__isnull=False),
            ),),
    ]
