"""Adds the index by which orders are found by the code of what holds them."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    """Builds the index without blocking writers."""

    atomic = False
    dependencies = [("supervision", "0021_saved_views")]
    operations = [
        AddIndexConcurrently(
            "alert", models.Index(fields=["code", "run"], condition=Q(("closed_at__isnull", True)), name="alert_by_code")
        )
    ]
