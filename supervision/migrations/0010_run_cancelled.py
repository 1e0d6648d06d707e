"""Adds the index by which the cancelled runs are listed."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    """Builds the index without blocking writers."""

    atomic = False
    dependencies = [("supervision", "0009_resume_from")]
    operations = [AddIndexConcurrently("run", models.Index(condition=models.Q(("process_state", "Cancelled")), fields=["created_at"], name="run_cancelled"))]
