"""Adds the index of errors by the moment at which they stopped an order."""

from __future__ import annotations

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    """Builds the index without blocking writers."""

    atomic = False
    dependencies = [("supervision", "0013_run_finished")]
    operations = [
        AddIndexConcurrently("alert", models.Index(name="alert_raised", fields=["raised_at"], condition=Q(kind="error"))),
    ]
