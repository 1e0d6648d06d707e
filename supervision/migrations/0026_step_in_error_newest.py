"""Adds the index by which the newest orders in Error are found, at any step."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    """Builds the index without blocking writers."""

    atomic = False
    dependencies = [("supervision", "0025_job_approval")]
    operations = [
        AddIndexConcurrently(
            "stepstate", models.Index(fields=["run"], condition=Q(("process_state", "Error")), name="step_in_error_newest")
        )
    ]
