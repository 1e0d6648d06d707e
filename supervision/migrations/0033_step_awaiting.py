"""Adds the index by which the steps that wait for one signal are found, beside very many that wait for others."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    """Builds the index without blocking writers."""

    atomic = False
    dependencies = [("supervision", "0032_two_more_rights")]
    operations = [
        AddIndexConcurrently(
            "stepstate",
            models.Index(
                fields=["awaits", "run"],
                condition=Q(("not_before__isnull", False), ("process_state", "Pending"), ("turn_at__isnull", True)),
                name="step_awaiting",
            ),
        )
    ]
