"""Adds the index of the deliveries that were given up, so that their lists do not read the others."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    """Builds the index without blocking writers."""

    atomic = False
    dependencies = [("supervision", "0047_one_job_for_a_form")]
    operations = [
        AddIndexConcurrently(
            "delivery", models.Index(name="delivery_given_up", fields=["client", "id"], condition=Q(given_up_at__isnull=False))
        ),
    ]
