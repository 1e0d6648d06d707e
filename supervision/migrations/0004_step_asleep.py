"""Adds the index by which the supervisor finds the steps whose wait is over."""

from __future__ import annotations

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    """Builds the index without blocking writers. No step sleeps before this release, so it is empty at first."""

    atomic = False
    dependencies = [("supervision", "0003_signals")]
    operations = [
        AddIndexConcurrently(
            model_name="stepstate",
            index=models.Index(
                condition=models.Q(("not_before__isnull", False), ("process_state", "Pending"), ("turn_at__isnull", True)),
                fields=["not_before"],
                name="step_asleep",
            ),
        ),
    ]
